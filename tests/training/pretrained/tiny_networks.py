"""Folders of tiny networks as transformers writes them, a tokenizer beside them, and their samples."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from tests.training.table import Table

WORDS: Final = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "play", "very"]
N: Final = 40
LABELS: Final = (np.arange(N) % 2).astype(np.int64)


def write_bert(folder: Path, seed: int = 0, pieces: Sequence[str] = ()) -> Path:
    """Write a DistilBERT of two layers without a head, and a tokenizer of ten words and further pieces of words."""
    from transformers import BertTokenizerFast, DistilBertConfig, DistilBertModel

    folder.mkdir(parents=True)
    words = [*WORDS, *pieces]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer: Any = BertTokenizerFast
    tokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    make: Any = DistilBertConfig
    config = make(vocab_size=len(words), dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=12)
    return _saved(DistilBertModel, config, folder, seed)


def write_vit(folder: Path, seed: int = 0) -> Path:
    """Write a vision transformer for images of 8 x 8 pixels, with a head of three classes."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    make: Any = ViTConfig
    config = make(**sizes, image_size=8, patch_size=4, num_labels=3)
    folder.mkdir(parents=True)
    return _saved(ViTForImageClassification, config, folder, seed)


def write_resnet(folder: Path, seed: int = 0) -> Path:
    """Write a residual network with batch norm for images of 8 x 8 pixels, without a head."""
    from transformers import ResNetConfig, ResNetModel

    make: Any = ResNetConfig
    config = make(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    folder.mkdir(parents=True)
    return _saved(ResNetModel, config, folder, seed)


def _saved(network: Any, config: Any, folder: Path, seed: int) -> Path:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network(config).save_pretrained(folder)
    return folder


def change_config(folder: Path, **entries: Any) -> None:
    """Change entries of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def texts() -> Table:
    """Films and plays, good or bad."""
    rng = np.random.default_rng(5)
    rows = [f"{'good' if label else 'bad'} {rng.choice(['film', 'play'])}" for label in LABELS]
    return Table({}, labels=LABELS, blobs=[row.encode() for row in rows])


def images() -> Table:
    """Dark and bright images of 8 x 8 pixels."""
    rng, blobs = np.random.default_rng(5), []
    for label in LABELS:
        file = io.BytesIO()
        Image.fromarray(rng.integers(100 * label, 100 * label + 100, (8, 8, 3), dtype=np.uint8)).save(file, "PNG")
        blobs.append(file.getvalue())
    return Table({}, labels=LABELS, blobs=blobs)
