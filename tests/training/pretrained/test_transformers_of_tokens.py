"""Networks of transformers with outputs per token: tags, and language models of both kinds."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.serving.exporting import export_program
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Predictor, Task, TrainedModel, build_predictor
from modyn_dagster.training.data import COLUMNS
from modyn_dagster.training.predictor_record import PredictorRecord
from modyn_dagster.training.pretrained.weights_file import read_pretrained, with_config
from tests.training.pretrained.tiny_networks import WORDS, write_bert
from tests.training.table import Table, spec_of
from tests.training.trained import trained

ADAM: Final = {"optimizer": {"name": "adam", "lr": 0.01}, "batch_size": 10, "epochs": 12}
GPT: Final = {
    "model_type": "gpt2",
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 8,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    write_bert(tmp_path / "bert")
    return tmp_path


def reviews(*, shorter: bool = False) -> Table:
    """Reviews whose opinions are tagged; shorter ones lack the last word."""
    rng = np.random.default_rng(5)
    words = [" ".join(rng.choice(["very", "good", "bad", "film", "play"], rng.integers(1, 6))) for _ in range(40)]
    names = {"very": "B-OPINION", "good": "I-OPINION", "bad": "I-OPINION"}
    tags = [" ".join(names.get(word, "O") for word in text.split()) for text in words]
    if shorter:
        words = [text.rpartition(" ")[0] for text in words]
    return Table({"words": np.array(words, dtype=object), "tags": np.array(tags, dtype=object)})


def spec_for(task: str, loss: dict[str, Any], **fields: Any) -> TrainingSpec:
    tags = {"tags": "tags"} if task == "token_classification" else {}
    parser = {"tokenizer": {"path": "bert", "columns": ["words"], "length": 8} | tags}
    model = {"name": "hf", "task": task, "folder": "bert"} | fields.pop("model", {})
    return spec_of(**{"model": model, "parser": parser, "loss": loss} | ADAM | fields)


def fine_tuned(spec: TrainingSpec, project: Path, kind: Any) -> TrainedModel:
    spec = with_config(spec, project, source="pipeline p")
    return trained(reviews(), spec, initial=read_pretrained(spec, project, source="pipeline p"), task=Task(kind))


def predictor(found: TrainedModel) -> Predictor:
    return build_predictor(found.architecture, found.state_dict, threads=1, source="pipeline p")


TAGS: Final = {"name": "token_tags", "tags": ["O", "B-OPINION", "I-OPINION"]}
MASKED: Final = {"name": "masked_tokens", "vocabulary": len(WORDS), "mask": 4, "share": 0.3}


def test_a_network_learns_the_tags_of_words_and_is_that_of_transformers(project: Path) -> None:
    from transformers import AutoModelForTokenClassification

    found = fine_tuned(spec_for("token_classification", TAGS), project, "tags")
    report = found.record()["pretrained"]
    assert (report["missing"], report["unexpected"]) == (["model.classifier.bias", "model.classifier.weight"], [])
    own, samples = predictor(found), reviews().samples
    outputs = own(samples)
    assert score("span_f1", own.measures(samples), np.zeros(40)).value == 1
    network = AutoModelForTokenClassification.from_pretrained(project / "bert", num_labels=3)
    network.load_state_dict({name.removeprefix("body.model."): tensor for name, tensor in found.state_dict.items()})
    tokens = torch.from_numpy(own.tapped(samples, {COLUMNS})[COLUMNS]).long()
    with torch.inference_mode():
        expected = network.eval()(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    np.testing.assert_allclose(outputs, expected.flatten(1).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.soak("laws-training")
def test_a_network_goes_on_to_learn_hidden_words(project: Path) -> None:
    found = fine_tuned(spec_for("masked_lm", MASKED), project, "tokens")
    assert found.losses[-1] < found.losses[0]
    # The weights of the base network are those of the file, and the layer of the vocabulary is its table of words.
    assert all(name.startswith("model.vocab_") for name in found.record()["pretrained"]["missing"])
    assert predictor(found)(reviews().samples).shape == (40, 8 * len(WORDS))


def test_a_network_of_a_configuration_predicts_the_next_token(project: Path) -> None:
    loss = {"name": "causal_tokens", "vocabulary": len(WORDS)}
    model = {"folder": None, "config": GPT}
    found = fine_tuned(spec_for("causal_lm", loss, model=model, epochs=4), project, "tokens")
    assert found.losses[-1] < found.losses[0]
    own, samples = predictor(found), reviews().samples
    before = own(samples).reshape(40, 8, -1)
    # A later word changes nothing before it.
    after = own(reviews(shorter=True).samples).reshape(40, 8, -1)
    for row, text in enumerate(reviews().columns["words"]):
        # The first token is that of the beginning.
        unchanged = len(text.split())
        np.testing.assert_allclose(before[row, :unchanged], after[row, :unchanged], rtol=1e-4, atol=1e-6)
        assert not np.allclose(before[row, unchanged], after[row, unchanged])


def test_a_vocabulary_that_is_not_that_of_the_configuration_is_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.model: .*vocab_size is 10, training\.loss\.vocabulary 11"):
        fine_tuned(spec_for("masked_lm", MASKED | {"vocabulary": 11}), project, "tokens")


@pytest.mark.soak("laws-training")
def test_a_program_of_it_takes_the_tokens_alone(project: Path) -> None:
    spec = spec_for("token_classification", TAGS, epochs=1)
    found = fine_tuned(spec, project, "tags")
    names: dict[str, Any] = {"name": "p", "model": "0123abcd", "store": None, "class_names": (), "threads": 1}
    record = PredictorRecord.of(
        with_config(spec, project, source="p"), found.architecture, dtypes={"words": "string", "tags": "string"}, **names
    )
    path = project / "tagger.pt2"
    assert export_program(record, found.state_dict, path)["inputs"][0]["shape"] == ["n", 8]
    own, samples = predictor(found), reviews().samples
    tokens = torch.from_numpy(own.tapped(samples, {COLUMNS})[COLUMNS]).long()
    outputs = torch.export.load(path).module()(tokens)
    np.testing.assert_allclose(outputs.detach().flatten(1).numpy(), own(samples), rtol=1e-5, atol=1e-6)
