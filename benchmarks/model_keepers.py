"""Common interface to model stores that save modules: ours and, given a checkout, MMlib's."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import nn

from benchmarks.contenders.mmlib_models import APPROACHES, Published
from benchmarks.model_flows import Recipe, State
from benchmarks.model_setting import DELTA
from modyn_dagster.model_store import Adaptive, ChangedLayers, ModelStore
from modyn_dagster.model_store.strategies.settings import Strategy

#: Our strategies beside MMlib's approaches, by what an update changes.
STRATEGIES: Final[Mapping[str, Mapping[str, Strategy]]] = {
    "full": {"delta": DELTA},
    "partial": {"changed_layers": ChangedLayers(), "adaptive": Adaptive()},
}


class Keeper(Protocol):
    """Keeps the models of one network."""

    def save(self, module: nn.Module, base: str | None) -> str:
        """The id of a module derived from ``base``."""

    def recover(self, model: str) -> nn.Module:
        """Built anew, its weights verified."""

    def size(self, model: str) -> int:
        """Bytes a model added."""

    def contents(self) -> frozenset[str]:
        """What is there."""

    def keep(self, contents: frozenset[str]) -> None:
        """Removes what came since."""


@dataclass(frozen=True)
class Ours:
    """Our store with one strategy; the network is built by its function, as MMlib does it."""

    store: ModelStore
    strategy: Strategy
    build: Callable[[], nn.Module]

    def save(self, module: nn.Module, base: str | None) -> str:
        """With where the network comes from."""
        factory = f"{self.build.__module__}:{self.build.__name__}"
        return self.store.save(module.state_dict(), base=base, strategy=self.strategy, model=factory)

    def recover(self, model: str) -> nn.Module:
        """Its fresh weights are overwritten."""
        module = self.build()
        self.store.load_into(model, module)
        return module

    def size(self, model: str) -> int:
        """As the store says."""
        return self.store.size(model)

    def contents(self) -> frozenset[str]:
        """The models."""
        return frozenset(self.store.list())

    def keep(self, contents: frozenset[str]) -> None:
        """Those that came since have no children yet."""
        for model in self.contents() - contents:
            self.store.delete(model)


@contextmanager
def keepers(mmlib: Path, recipe: Recipe, update: str) -> Iterator[dict[str, Keeper]]:
    """MMlib's approaches and our strategies for such an update, each in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="keepers-") as path:
        found: dict[str, Keeper] = {name: Published(mmlib, Path(path) / name, name, recipe.build) for name in APPROACHES}
        for name, strategy in STRATEGIES[update].items():
            found[name] = Ours(ModelStore(Path(path) / name, threads=torch.get_num_threads()), strategy, recipe.build)
        yield found


def module_of(recipe: Recipe, state: State) -> nn.Module:
    """The network with these weights."""
    module = recipe.build()
    module.load_state_dict(state)
    return module


def differing(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str | None:
    """The first name whose dtype, shape or bits differ, or that stands elsewhere; None where all is the same."""
    if list(found) != list(expected):
        return next((a for a, b in zip(found, expected, strict=False) if a != b), "the number of tensors")
    for name, tensor in found.items():
        other = expected[name]
        if (tensor.dtype, tensor.shape) != (other.dtype, other.shape) or not torch.equal(_bits(tensor), _bits(other)):
            return name
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
