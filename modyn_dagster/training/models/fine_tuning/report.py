"""Report of partially loaded weights, and the loading into any module."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError

Shape = tuple[int, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Tensors of a pretrained model that were taken over, and those that were not.

    Attributes:
        n_loaded: tensors of the model with values of the file.
        missing: tensors of the model that the file does not have; they begin fresh.
        unexpected: tensors of the file that the model does not have.
        reinitialised: tensors of another shape, such as a head with another number of classes: name, shape in the file, shape in
            the model. They begin fresh.
    """

    n_loaded: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    reinitialised: tuple[tuple[str, Shape, Shape], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Record of the model's row in the catalog."""
        return {
            "loaded": self.n_loaded,
            "missing": list(self.missing),
            "unexpected": list(self.unexpected),
            "reinitialised": [
                {"name": name, "file": list(file), "model": list(model)} for name, file, model in self.reinitialised
            ],
        }

    def require_some(self, weights: Mapping[str, Any], names: list[str], *, field: str, path: str, source: str) -> None:
        """Raise ``ConfigError`` where nothing of a file fits: its weights belong to another architecture."""
        if self.n_loaded == 0:
            rule = (
                f"has weights of another architecture: none fits; the file has {_some(list(weights))}, the model {_some(names)}"
            )
            raise ConfigError(source, field, path, rule)


def compare_shapes(file: Mapping[str, Shape], model: Mapping[str, Shape]) -> LoadReport:
    """Compare tensors of a file with those of a model, by name and shape.

    >>> report = compare_shapes({"a": (2,), "head": (3, 2), "old": (1,)}, {"a": (2,), "head": (5, 2), "new": (4,)})
    >>> report.n_loaded, report.missing, report.unexpected, report.reinitialised
    (1, ('new',), ('old',), (('head', (3, 2), (5, 2)),))
    """
    both = [name for name in model if name in file]
    return LoadReport(
        sum(file[name] == model[name] for name in both),
        tuple(name for name in model if name not in file),
        tuple(name for name in file if name not in model),
        tuple((name, file[name], model[name]) for name in both if file[name] != model[name]),
    )


@torch.no_grad()
def load_partially(module: nn.Module, weights: Mapping[str, Tensor]) -> LoadReport:
    """Copy the tensors of a file that fit a module by name and shape; dtypes become those of the module."""
    own = module.state_dict()
    report = compare_shapes(shapes_of(weights), shapes_of(own))
    fresh = {*report.missing, *(name for name, _, _ in report.reinitialised)}
    for name, tensor in own.items():
        if name not in fresh:
            tensor.copy_(weights[name])
    return report


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Shapes of tensors by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def renamed(names: Mapping[str, str], name: str) -> str:
    """Name in the model of a tensor of a file, by beginnings of names.

    >>> renamed({"module.": "", "": "backbone."}, "module.fc.weight"), renamed({"": "backbone."}, "fc.weight")
    ('fc.weight', 'backbone.fc.weight')
    """
    return next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name)


def by_names_of_body(tensors: Mapping[str, _T], names: Collection[str]) -> dict[str, _T]:
    """Tensors of a file by the names that a body has: as they are, of an exported model, or of the network that it wraps.

    An exported model has a body's tensors behind `body.`, beside what was fitted to its training set. A wrapper has all of its
    names behind that of the network in it.

    >>> by_names_of_body({"body.fc": 1, "standardize.mean": 2}, ["fc"]), by_names_of_body({"fc": 1}, ["network.fc"])
    ({'fc': 1}, {'network.fc': 1})
    """
    exported = {name.removeprefix("body."): tensor for name, tensor in tensors.items() if name.startswith("body.")}
    roots = {name.partition(".")[0] for name in names}
    wrapped = {f"{root}.{name}": tensor for root in roots for name, tensor in tensors.items()} if len(roots) == 1 else {}
    return max((dict(tensors), exported, wrapped), key=lambda named: len(named.keys() & set(names)))


def _some(names: list[str], most: int = 3) -> str:
    return ", ".join(sorted(names)[:most]) + (", ..." if len(names) > most else "") if names else "no tensors"
