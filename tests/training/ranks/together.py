"""Trainings in ranks, several in one group, and a group that forks instead of importing torch again for every rank."""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import ModynError
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import CheckpointFile, FastPath, Task, TrainedModel, TrainingProgress, train
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.loop.steps import Steps
from modyn_dagster.training.states import packed, unpacked
from modyn_dagster.training.team.team import team_of
from modyn_dagster.training.telemetry import Stopwatch
from tests.training.table import Table

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds that a rank of a test waits for another one.
TIMEOUT = 60.0


class Broken(Exception):
    """A training that a test breaks off."""


@dataclass(frozen=True)
class Case:
    """One training of 150 samples with uneven weights.

    Attributes:
        spec: spec of the training.
        n: number of samples.
        checkpoint: file of the checkpoint; None without.
        stop: batch after which all ranks break off; 0 for none.
        cache_bytes: largest set that is kept in memory.
    """

    spec: TrainingSpec
    n: int = 150
    checkpoint: Path | None = None
    stop: int = 0
    cache_bytes: int = 1 << 20

    def alone(self) -> "Case":
        """The same training in one process."""
        return replace(self, spec=self.spec.model_copy(update={"ranks": 1}))

    def divided(self, ranks: int = 2) -> "Case":
        """The same training with weights divided among ranks."""
        return replace(self, spec=self.spec.model_copy(update={"strategy": "fsdp", "ranks": ranks}))


@dataclass(frozen=True)
class Ended:
    """End of a case on one rank: a model with its tensors, an error, or neither where it was broken off."""

    model: TrainedModel | None
    error: ModynError | None = None
    #: Keys of every step, in the order of the ranks.
    keys: tuple[tuple[int, ...], ...] = ()

    @property
    def weights(self) -> Tensor:
        """Weights of the body as one row."""
        assert self.model is not None, self.error
        parts = [tensor.flatten() for name, tensor in self.model.state_dict.items() if name.startswith("body.")]
        return torch.cat(parts)

    @property
    def bits(self) -> bytes:
        """Everything that must not depend on the run."""
        assert self.model is not None, self.error
        state = b"".join(tensor.numpy().tobytes() for tensor in self.model.state_dict.values())
        return state + repr((self.model.losses, self.model.curve, self.model.n_steps, self.model.calibration_losses)).encode()


def rows(n: int, seed: int) -> Table:
    """Two classes that a line tells apart, in two columns."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, n))
    return Table({"left": left, "right": right}, labels=(left + 0.3 * rng.normal(size=n) > right).astype(np.int64))


def run(case: Case, **options: Any) -> Ended:
    """Run a case in this process, or as one of the ranks of ``team``."""

    def told(progress: TrainingProgress) -> None:
        if progress.step == case.stop:
            raise Broken

    given: dict[str, Any] = {
        "task": Task(kind_of_objective(case.spec.loss) or "class"),
        "seed": 7,
        "threads": 1,
        "source": "pipeline p",
    }
    data = rows(case.n, 1).data(np.linspace(0.5, 2, case.n), FastPath(cache_bytes=case.cache_bytes))
    calibrate = rows(40, 2).data() if case.spec.early_stopping is not None else None
    file = None if case.checkpoint is None else CheckpointFile(case.checkpoint)
    with suppress(Broken), noted_keys() as keys:
        try:
            model = train(case.spec, data, calibrate=calibrate, checkpoint=file, progress=told, **given, **options)
        except ModynError as error:
            return Ended(None, error)
        return Ended(model, keys=tuple(keys))
    return Ended(None)


@contextmanager
def noted_keys() -> Iterator[list[tuple[int, ...]]]:
    """Note the keys of every step, of all ranks."""
    noted: list[tuple[int, ...]] = []
    step = Steps.step

    def noting(self: Steps, batch: Batch, number: int, watch: Stopwatch) -> float:
        noted.append(tuple(batch.everything.keys.tolist()))
        return step(self, batch, number, watch)

    Steps.step = noting  # type: ignore[method-assign]  # for the time of one training
    try:
        yield noted
    finally:
        Steps.step = step  # type: ignore[method-assign]


def run_all(rank: Rank, cases: Sequence[Case]) -> list[tuple[Ended, bytes]]:
    """Run cases one after the other in one group; the models' tensors are packed."""
    torch.set_num_threads(1)
    with team_of(rank, torch.device("cpu"), timeout=TIMEOUT) as team:
        ended = [run(case, team=team) for case in cases]
    return [(replace(each, model=_light(each.model)), packed(_state(each.model))) for each in ended]


def together(cases: Sequence[Case], ranks: int = 2) -> list[list[Ended]]:
    """Run cases in ranks; for each the ends on all ranks."""
    results = ForkedGroup().run(run_all, list(cases), ranks)
    loaded = [[_loaded(ended, content) for ended, content in of_rank] for of_rank in results]
    return [list(ends) for ends in zip(*loaded, strict=True)]


class ForkedGroup:
    """Ranks that are forked from one new process, which has imported torch and started no thread."""

    def run(
        self,
        function: Callable[[Rank, Item], Result],
        argument: Item,
        ranks: int,
        resources: Resources = Resources(),  # noqa: B008 - frozen
    ) -> list[Result]:
        """Call a function in every rank."""
        (results,) = LocalGroup().run(_fork, (function, argument, ranks), 1, resources)
        return results


def _fork(rank: Rank, call: tuple[Callable[[Rank, Any], Any], Any, int]) -> list[Any]:
    function, argument, ranks = call
    with TemporaryDirectory() as folder:
        places = [Rank(i, ranks, f"file://{folder}/meeting") for i in range(ranks)]
        pipes = [_forked(function, place, argument) for place in places]
        answers = [pickle.loads(pipe.recv_bytes()) for pipe in pipes]  # noqa: S301 - of our own fork
        for _ in pipes:
            os.wait()
    return answers


def _forked(function: Callable[[Rank, Any], Any], place: Rank, argument: Any) -> Any:
    mine, theirs = Pipe()
    if os.fork() == 0:
        try:
            theirs.send_bytes(pickle.dumps(function(place, argument)))
        finally:
            os._exit(0)
    theirs.close()
    return mine


def _light(model: TrainedModel | None) -> TrainedModel | None:
    return None if model is None else replace(model, state_dict={}, optimizers=None)


def _state(model: TrainedModel | None) -> Any:
    return None if model is None else {"state_dict": model.state_dict, "optimizers": model.optimizers}


def _loaded(ended: Ended, content: bytes) -> Ended:
    return ended if ended.model is None else replace(ended, model=replace(ended.model, **unpacked(content)))
