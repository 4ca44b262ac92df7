"""Trainings by ``train`` and by a hand-written loop over tensors in memory, with the same updates step by step."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.measure import Run
from fastpath import Order, TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.learning.downsampling import DownsamplingSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainedModel, TrainingData, train

_SEED: Final = 0
#: Stages of a training that are no part of its loop.
_NOT_STEPS: Final = frozenset({"prepare", "finish"})


@dataclass
class Rows:
    """Columns in memory, read by key."""

    columns: dict[str, npt.NDArray[Any]]
    labels: npt.NDArray[np.int64]

    def read(self, keys: KeyArray) -> Samples:
        """By key."""
        at = (keys - keys_of(1, np.arange(1))[0]).astype(np.int64)
        times = np.zeros(len(at), dtype="datetime64[us]")
        columns = {name: column[at] for name, column in self.columns.items()}
        return Samples(keys=keys, times=times, labels=self.labels[at], targets=None, columns=columns, blobs=None)


@dataclass(frozen=True, slots=True)
class Written:
    """What the loop by hand did.

    Attributes:
        run: its steps and seconds.
        judged: seconds of them for forward passes without learning, and for choosing by them.
        model: with what it learnt.
    """

    run: Run
    judged: float
    model: nn.Module


@dataclass(frozen=True)
class Setup:
    """One training, both ways.

    Attributes:
        name: of its figures.
        what: it is, for people.
        spec: of our loop.
        rows: that it learns from.
        build: its model, for the loop by hand.
        inputs: the same rows as tensors, as that model takes them.
    """

    name: str
    what: str
    spec: TrainingSpec
    rows: Rows
    build: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]

    @property
    def n_steps(self) -> int:
        """Of one run."""
        return -(-len(self.rows.labels) // self.spec.batch_size) * self.spec.epochs

    def ours(self, downsampling: DownsamplingSpec | None = None) -> TrainedModel:
        """By ``train``."""
        n = len(self.rows.labels)
        data = TrainingData(TrainingSet.of(keys_of(1, np.arange(n))), self.rows)
        spec = self.spec.model_copy(update={"downsampling": downsampling})
        task, threads = Task("class", n_classes=2), torch.get_num_threads()
        return train(spec, data, task=task, seed=_SEED, threads=threads, source="benchmark")

    def by_hand(self, kept: float = 1.0, *, chosen: bool = False) -> Written:
        """The same batches, updates and record of losses.

        With a share ``kept`` below 1 the whole batch goes through the model first, without gradients and in evaluation mode,
        and the first so many of it are learnt from: what choosing them could cost at the least. ``chosen`` draws them in
        proportion to their losses with replacement, in as few calls of torch as it takes, and does not check them.
        """
        torch.manual_seed(seed_for(_SEED, "torch"))
        model, labels, n = self.build(), torch.from_numpy(self.rows.labels), len(self.rows.labels)
        weights, size = torch.ones(n), self.spec.batch_size
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses, judged = list[float](), 0.0
        torch.use_deterministic_algorithms(True)
        start = time.perf_counter()
        for epoch in range(self.spec.epochs):
            order = torch.from_numpy(Order(n, shuffle=True, seed=_SEED, epoch=epoch).positions(0, n))
            for first in range(0, n, size):
                at = order[first : first + size]
                inputs, targets, w = [tensor[at] for tensor in self.inputs], labels[at], weights[at]
                if kept < 1:
                    before, k = time.perf_counter(), round(kept * len(at))
                    outputs = _judge(model, inputs)
                    if chosen:
                        inputs, targets, w = _drawn(outputs, inputs, targets, w, k)
                    judged += time.perf_counter() - before
                    if not chosen:
                        inputs, targets, w = [tensor[:k] for tensor in inputs], targets[:k], w[:k]
                optimizer.zero_grad()
                each = nn.functional.cross_entropy(model(*inputs), targets, reduction="none")
                loss = torch.dot(each, w) / w.sum()
                losses.append(float(loss.detach()))
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                optimizer.step()
        seconds = time.perf_counter() - start
        torch.use_deterministic_algorithms(False)
        return Written(Run(len(losses), seconds), judged, model)


def run_of(found: TrainedModel) -> Run:
    """The steps of a training, and the seconds from its first batch to its last step."""
    return Run(found.n_steps, sum(seconds for stage, seconds in found.seconds.items() if stage not in _NOT_STEPS))


@torch.no_grad()
def _judge(model: nn.Module, inputs: list[Tensor]) -> Tensor:
    model.eval()
    outputs: Tensor = model(*inputs)
    model.train()
    return outputs


@torch.no_grad()
def _drawn(outputs: Tensor, inputs: list[Tensor], targets: Tensor, w: Tensor, k: int) -> tuple[list[Tensor], Tensor, Tensor]:
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    at = torch.multinomial(losses, k, replacement=True)
    weights = losses.sum() / (k * losses[at]) * w[at]
    return [tensor[at] for tensor in inputs], targets[at], weights


def mlp(name: str, n: int, batch_size: int, hidden: list[int]) -> Setup:
    """A network on rows of the demo's width: ten numbers, two classes."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(n, 10)).astype(np.float32)
    fields = {"model": {"name": "mlp", "hidden": hidden}, "batch_size": batch_size, "standardize": False, "epochs": 1}
    widths = [10, *hidden]

    def build() -> nn.Module:
        layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(widths[-1], 2))

    what = f"MLP of {' x '.join(map(str, hidden))}, batches of {batch_size}"
    labels = (table[:, 0] > 0).astype(np.int64)
    return Setup(name, what, _spec(fields), Rows({"x": table}, labels), build, (torch.from_numpy(table),))


def dlrm(name: str, n: int, batch_size: int) -> Setup:
    """Rows like Criteo's: 13 numbers and 26 categories."""
    rng = np.random.default_rng(2)
    numbers = rng.normal(size=(n, 13)).astype(np.float32)
    kinds = rng.integers(0, 10_000, (n, 26)).astype(np.int64)
    groups = {"numeric": {"columns": ["n"]}, "categorical": {"columns": ["k"], "dtype": "int64"}}
    fields = {"model": {"name": "dlrm"}, "features": groups, "batch_size": batch_size, "standardize": False, "epochs": 1}

    def build() -> nn.Module:
        from modyn_dagster.training.models.dlrm import DLRM

        return DLRM(13, [10_000] * 26, embedding=16, bottom=[64], top=[64], n_outputs=2)

    labels = (kinds[:, 0] % 2).astype(np.int64)
    inputs = (torch.from_numpy(numbers), torch.from_numpy(kinds))
    return Setup(name, f"DLRM, batches of {batch_size}", _spec(fields), Rows({"n": numbers, "k": kinds}, labels), build, inputs)


def _spec(fields: dict[str, Any]) -> TrainingSpec:
    return TrainingSpec.model_validate(fields | {"optimizer": {"name": "sgd", "lr": 0.01}})
