"""Built-in models train, come back from the store unchanged, and match their papers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainedModel, build_predictor, train
from modyn_dagster.training.data import EMBEDDING
from modyn_dagster.training.models.dlrm import DLRM
from modyn_dagster.training.models.images import Pictures, ResNet
from tests.training.table import Table
from tests.variants import represented

RNG = np.random.default_rng(11)
LABELS = (np.arange(120) % 2).astype(np.int64)
ADAM = {"optimizer": {"name": "adam", "lr": 0.01}, "batch_size": 40, "epochs": 5}


def images(side: int, channels: int = 1) -> np.ndarray:
    """The upper half is bright in one class, the lower half in the other."""
    found = RNG.integers(0, 80, (len(LABELS), channels, side, side))
    for i, label in enumerate(LABELS):
        half = slice(0, side // 2) if label else slice(side // 2, side)
        found[i, :, half] += 150
    return found.astype(np.uint8)


def rows_of_pixels() -> Table:
    return Table({"pixels": images(8).reshape(len(LABELS), -1), "label": LABELS}, labels=LABELS)


def clicks() -> Table:
    """The class follows from one category."""
    shop = RNG.integers(0, 50, len(LABELS)) * 2 + LABELS
    columns = {"price": RNG.normal(size=len(LABELS)), "shop": shop, "country": RNG.integers(0, 9, len(LABELS)), "label": LABELS}
    return Table(columns, labels=LABELS)


def titles() -> Table:
    words = np.array(["red", "green", "blue", "grey"])
    titles = [" ".join([*RNG.choice(words, 5), "cats" if label else "Dogs"]) for label in LABELS]
    return Table({"title": np.array(titles, dtype=object), "label": LABELS}, labels=LABELS)


GROUPS = {"numeric": {"columns": ["price"]}, "categorical": {"columns": ["shop", "country"], "dtype": "int64"}}
TEXT = {"text": {"columns": ["title"], "buckets": 1000, "length": 8}}
SMALL_BERT = {
    "name": "distilbert",
    "buckets": 1000,
    "length": 8,
    "layers": 1,
    "heads": 2,
    "width": 16,
    "hidden": 32,
    "dropout": 0.0,
}

CASES: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "cnn": (rows_of_pixels, {"model": {"name": "cnn", "shape": [1, 8, 8], "channels": [4, 8, 8], "hidden": 8}}),
    "resnet18": (
        rows_of_pixels,
        {"model": {"name": "resnet18", "shape": [1, 8, 8], "stem": "small"}, "batch_size": 20, "epochs": 8},
    ),
    "dlrm": (clicks, {"model": {"name": "dlrm", "rows": 100}, "features": GROUPS, "epochs": 30}),
    "hashed_text": (titles, {"model": {"name": "hashed_text", "buckets": 1000}, "parser": TEXT, "epochs": 15}),
    "distilbert": (titles, {"model": SMALL_BERT, "parser": TEXT, "epochs": 40}),
}


def spec_for(name: str) -> TrainingSpec:
    return TrainingSpec.model_validate(ADAM | CASES[name][1])


def trained(table: Table, spec: TrainingSpec) -> TrainedModel:
    return train(spec, table.data(), task=Task("class", exclude=frozenset({"label"})), seed=3, threads=1, source="pipeline p")


@pytest.mark.long
@represented("name", list(CASES), "laws-training", *(name for name in CASES if name not in ("resnet18", "distilbert")))
def test_it_learns_what_can_be_learnt_and_comes_back_as_it_was_stored(name: str) -> None:
    table = CASES[name][0]()
    found = trained(table, spec_for(name))
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="pipeline p")
    logits = predict(table.samples)
    assert logits.shape == (len(LABELS), 2)
    assert (logits.argmax(axis=1) == LABELS).mean() > 0.95
    embedding = predict.tapped(table.samples, {EMBEDDING})[EMBEDDING]
    assert len(embedding) == len(LABELS)


@pytest.mark.long
@pytest.mark.soak("laws-training")
@pytest.mark.parametrize("name", ["resnet50", "resnet152"])
def test_deep_residual_networks_learn_a_few_images_by_heart(name: str) -> None:
    pixels = np.random.default_rng(5).integers(0, 255, (8, 3 * 32 * 32), dtype=np.uint8)
    table = Table({"pixels": pixels, "label": LABELS[:8]}, labels=LABELS[:8])
    model = {"name": name, "shape": [3, 32, 32]}
    optimizer = {"name": "adam", "lr": 0.0001}
    losses = trained(table, TrainingSpec.model_validate({"model": model, "optimizer": optimizer, "epochs": 4})).losses
    assert min(losses[1:]) < 0.9 * losses[0]


@pytest.mark.parametrize("name", ["cnn", "dlrm", "hashed_text", "distilbert"])
def test_equal_seeds_give_equal_bits(name: str) -> None:
    table, spec = CASES[name][0](), TrainingSpec.model_validate(ADAM | CASES[name][1] | {"epochs": 1})
    one, other = trained(table, spec), trained(table, spec)
    for key, tensor in one.state_dict.items():
        assert tensor.numpy().tobytes() == other.state_dict[key].numpy().tobytes(), key


# The counts of the paper's networks with 1,000 classes, as every library reports them.
@pytest.mark.parametrize(("layers", "n_parameters"), [(18, 11_689_512), (50, 25_557_032), (152, 60_192_808)])
def test_residual_networks_have_the_size_of_the_paper(layers: int, n_parameters: int) -> None:
    with torch.device("meta"):
        model = ResNet(1000, layers=layers)
        assert sum(parameter.numel() for parameter in model.parameters()) == n_parameters
        assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 1000)


def test_dlrm_is_embeddings_dot_products_and_two_networks() -> None:
    torch.manual_seed(0)
    model = DLRM(3, [5, 7], embedding=4, bottom=[6], top=[8], n_outputs=2)
    numeric, categorical = torch.randn(9, 3), torch.randint(0, 40, (9, 2))
    got = model(numeric, categorical)
    for i in range(9):
        vectors = [
            model.bottom(numeric[i : i + 1])[0],
            model.embedding.weight[categorical[i, 0] % 5],
            model.embedding.weight[5 + categorical[i, 1] % 7],
        ]
        products = [vectors[a] @ vectors[b] for a in range(3) for b in range(a)]
        expected = model.top(torch.cat([vectors[0], torch.stack(products)]))
        torch.testing.assert_close(got[i], expected)


def test_a_convolutional_network_of_pictures_takes_whole_numbers_as_shares_of_one() -> None:

    model = Pictures((1, 8, 8), nn.Sequential(nn.Flatten(), nn.Linear(64, 1)))
    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(model(pixels), model(pixels.float() / 255))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"name": "cnn"}}, "takes images"),
        ({"model": {"name": "hashed_text"}}, "takes texts"),
        ({"model": {"name": "hashed_text", "buckets": 10}, "parser": TEXT}, "1000 n-grams apart"),
        ({"model": {"name": "dlrm"}}, "two groups"),
        (
            {"model": {"name": "dlrm"}, "features": {"numeric": {"columns": ["a"]}, "categorical": {"columns": ["b"]}}},
            "int32 or int64",
        ),
        ({"model": {"name": "mlp"}, "features": GROUPS}, "takes one input"),
        ({"model": SMALL_BERT | {"heads": 3}, "parser": TEXT}, "multiple of heads"),
    ],
)
def test_what_a_model_cannot_take_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingSpec.model_validate(fields)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("cnn", {"shape": [1, 9, 9]}, "81 values, a sample has 64"),
        ("cnn", {"shape": [1, 4, 16]}, "too small"),
        ("distilbert", {"length": 4}, "texts have 8 words"),
    ],
)
def test_samples_of_another_shape_are_refused_with_the_reason(name: str, changed: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {**ADAM, **CASES[name][1]}
    spec = TrainingSpec.model_validate(fields | {"model": fields["model"] | changed})
    with pytest.raises(ConfigError, match=message):
        trained(CASES[name][0](), spec)
