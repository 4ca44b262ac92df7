"""Provenance: size of its record, bit-identity of the retrained model, and false alarms of the probe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks.model_flows import CLASSES, SIDE, Recipe, SmallNet, State, flow
from benchmarks.model_setting import Setting, folder, one
from benchmarks.report import Figure
from modyn_dagster.model_store import Provenance
from modyn_dagster.model_store.probe.recording import probe
from modyn_dagster.spec.learning.models import (
    CNNSpec,
    DistilBertSpec,
    DLRMSpec,
    HashedTextSpec,
    LogisticRegressionSpec,
    MLPSpec,
    ResNetSpec,
)
from modyn_dagster.training.columns.input import Input
from modyn_dagster.training.models import build_builtin
from modyn_dagster.training.models.layout import Layout

#: Their probe takes longer than a quick measurement may.
_LARGE: Final = frozenset({"resnet50", "resnet152"})

HERE: Final = "benchmarks.figures.retraining"

Built = Callable[[], nn.Module]


def again(base: State | None, *, data: Any, seed: int, steps: int) -> State:
    """A training that a provenance names: of a small net, on images drawn from the seed of ``data``."""
    recipe = Recipe(SmallNet, steps=steps, pretraining=steps)
    *_, state = flow(recipe, lr=1e-3, updates=1, start=base, seed=seed + int(data["images"]))
    return state


def provenance(setting: Setting) -> Iterator[Figure]:
    """G8."""
    recipe = Provenance(train=f"{HERE}:again", args={"steps": setting.small.steps}, data={"images": 3}, seed=1)
    with folder() as store:
        store.allow = (HERE,)
        first = recipe.run(None, allow=store.allow)
        base = store.save(first, strategy="snapshot")
        second = recipe.run(first, allow=store.allow)
        model = store.save(second, base=base, strategy="provenance", provenance=recipe)
        equal = _same_bits(store.load(model, retrain=True), second)
        size = store.size(model)
        many = {f"layer{n}.weight": torch.full((3,), float(n)) for n in range(932)}
        size_many = store.size(store.save(many, base=base, strategy="provenance", provenance=recipe))
    yield Figure("G8.bytes", "a provenance record of a small net", one(size), "bytes", 50_000, True)
    yield Figure("G8.bytes.932", "the same with the 932 tensors of ResNet-152", one(size_many), "bytes", 50_000, True)
    yield Figure("G8.equal", "trained again bit for bit", one(float(equal)), "of 1", 1)
    boxed = {name: each for name, each in _boxed().items() if not setting.is_quick or name not in _LARGE}
    alarms = [
        name for name, (build, inputs) in boxed.items() if not probe(build, inputs, lambda out: out.square().mean()).is_safe
    ]
    what = f"false alarms of the probe, over the {len(boxed)} models in the box"
    yield Figure("G8.alarms", what, one(len(alarms)), "models", 0, True, ", ".join(boxed))


def _same_bits(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    def bits(tensor: Tensor) -> Tensor:
        return tensor.reshape(-1).view(torch.uint8)

    return list(a) == list(b) and all(torch.equal(bits(a[name]), bits(b[name])) for name in a)


def _boxed() -> Mapping[str, tuple[Built, tuple[Any, ...]]]:
    """Each model in the box with inputs of its kind; the larger ones with fewer layers or smaller inputs."""
    rows, images = _layout("features", 6), _layout("features", 3, SIDE, SIDE)
    groups = Layout((*_layout("numeric", 13).inputs, *_layout("categorical", 26, dtype="int64").inputs), named=True)
    text = _layout("features", 16, dtype="int64")
    numbers, pictures = torch.linspace(-1, 1, 24).reshape(4, 6), torch.linspace(-1, 1, 4 * 3 * SIDE * SIDE)
    pictures, words = pictures.reshape(4, 3, SIDE, SIDE), torch.arange(64).reshape(4, 16) % 50
    wide, categories = torch.linspace(-1, 1, 52).reshape(4, 13), torch.arange(104).reshape(4, 26)
    short = DistilBertSpec(name="distilbert", buckets=100, length=16, layers=2, heads=2, width=32, hidden=64)
    return {
        "logistic_regression": (_builder(LogisticRegressionSpec(name="logistic_regression"), rows), (numbers,)),
        "mlp": (_builder(MLPSpec(name="mlp", dropout=0.2), rows), (numbers,)),
        "cnn": (_builder(CNNSpec(name="cnn"), images), (pictures,)),
        "resnet18": (_builder(ResNetSpec(name="resnet18"), images), (pictures,)),
        "resnet50": (_builder(ResNetSpec(name="resnet50"), images), (pictures,)),
        "resnet152": (_builder(ResNetSpec(name="resnet152"), images), (pictures,)),
        "dlrm": (_builder(DLRMSpec(name="dlrm"), groups), (wide, categories)),
        "hashed_text": (_builder(HashedTextSpec(name="hashed_text", buckets=100), text), (words,)),
        "distilbert": (_builder(short, text), (words,)),
    }


def _builder(spec: Any, layout: Layout) -> Built:
    return lambda: build_builtin(spec, layout, CLASSES)


def _layout(name: str, *shape: int, dtype: str | None = None) -> Layout:
    columns: Sequence[tuple[str, int]] = [(f"{name}{n}", 1) for n in range(shape[0])] if name != "features" else []
    return Layout((Input(name, tuple(columns), shape, tabular=False, dtype=dtype),))
