"""Training of one model by a group of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NotRequired, Self, TypedDict, Unpack

import torch
from torch import Tensor

from fastpath import TrainingSet
from modyn_dagster.distributed.protocols import Group, Rank, Resources
from modyn_dagster.files.mounting import Mount, opened_stores
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.reproducibility.devices import resolve_device
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.data import FastPath, PreviousModel, Reader, Task, TrainedModel, TrainingData, check_ranks
from modyn_dagster.training.loop.trainer import train
from modyn_dagster.training.progress_file import followed_progress, progress_teller
from modyn_dagster.training.states import packed, unpacked
from modyn_dagster.training.team.team import team_of

#: Longest wait of a rank for the others, in seconds.
TIMEOUT: Final = 600.0


class Arguments(TypedDict):
    """Arguments of ``train`` beside spec and data, and but for the team."""

    task: Task
    seed: int
    threads: int
    source: str
    previous: NotRequired[PreviousModel | None]
    initial: NotRequired[Mapping[str, Tensor] | None]
    calibrate: NotRequired[TrainingData | None]
    checkpoint: NotRequired[CheckpointFile | None]
    progress: NotRequired[ProgressCallback | None]


@dataclass(frozen=True, slots=True)
class SentData:
    """A training set on its way to a rank, which opens its file there: through the copies of the rank's node, if it is one.

    Attributes:
        chosen: path and checksum of the file; the set itself where it has none.
        reader: reader of the samples; it opens no file before the first key.
        fast_path: options of reading.
    """

    chosen: TrainingSet | tuple[Path, str | None]
    reader: Reader
    fast_path: FastPath

    @classmethod
    def of(cls, data: TrainingData) -> Self:
        """Describe a training set."""
        file = data.chosen.path
        return cls(data.chosen if file is None else (file, data.chosen.checksum), data.reader, data.fast_path)

    def open(self) -> TrainingData:
        """Open it in the process of a rank."""
        chosen = TrainingSet.open(*self.chosen) if isinstance(self.chosen, tuple) else self.chosen
        return TrainingData(chosen, self.reader, self.fast_path)


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of a training, for the process of a rank.

    Attributes:
        spec: spec of the training.
        sets: training set, and samples of early stopping.
        start: weights and states to start from, packed: ``previous`` or ``initial``.
        given: arguments of ``train`` that are plain values, and the file of the checkpoint, which all ranks can read.
        timeout: longest wait of a rank for the others, in seconds.
        progress: file that rank 0 tells its progress to; None for none.
        stores: stores whose copies this process reads.
    """

    spec: TrainingSpec
    sets: Mapping[str, SentData | None]
    start: bytes
    given: Mapping[str, Any]
    timeout: float
    progress: Path | None
    stores: Sequence[Mount]


def train_in_ranks(
    group: Group, spec: TrainingSpec, data: TrainingData, *, timeout: float = TIMEOUT, **arguments: Unpack[Arguments]
) -> TrainedModel:
    """Train one model in ``spec.ranks`` processes of a group, as ``train`` does in this one; only rank 0 writes checkpoints.

    The result depends on the number of ranks, and not on the group. ``progress`` is called in another thread, a few times a
    second, where the ranks run on this machine. ``timeout`` is the longest wait of a rank for the others, in seconds: also for
    one that reads the training set more slowly. Ranks read files that are copies of a store's as this process does.

    Raises:
        ConfigError: ranks cannot share this training.
        WorkerLost: a rank died, or did not answer in time. The next attempt continues at the checkpoint.
    """
    given: dict[str, Any] = dict(arguments)
    source, threads = arguments["source"], arguments["threads"]
    check_ranks(spec, source=source)
    previous, initial, calibrate = (given.pop(name, None) for name in ("previous", "initial", "calibrate"))
    start = {"previous": None if previous is None else _contents(previous), "initial": None if initial is None else dict(initial)}
    sets = {"data": SentData.of(data), "calibrate": None if calibrate is None else SentData.of(calibrate)}
    gpus = 1 if resolve_device(spec.device, source=source, field="training.device") == "cuda" else 0
    with followed_progress(given.pop("progress", None)) as path:
        order = Order(spec, sets, packed(start), given, timeout, path, opened_stores())
        results = group.run(train_rank, order, spec.ranks, Resources(cpus=threads, gpus=gpus))
    trained, states = next(result for result in results if result is not None)
    return replace(trained, **unpacked(states))


def train_rank(rank: Rank, order: Order) -> tuple[TrainedModel, bytes] | None:
    """Train as one of the ranks; the model and its packed tensors on rank 0, None on the others."""
    for store in order.stores:
        store.open()
    given: dict[str, Any] = {name: None if sent is None else sent.open() for name, sent in order.sets.items()}
    start: dict[str, Any] = unpacked(order.start)
    start["previous"] = None if start["previous"] is None else PreviousModel(**start["previous"])
    device = torch.device(resolve_device(order.spec.device, source=order.given["source"], field="training.device"))
    told = order.progress if rank.index == 0 else None
    with team_of(rank, device, timeout=order.timeout) as team, progress_teller(told) as progress:
        trained = train(order.spec, **given, **start, **order.given, progress=progress, team=team)
    if rank.index > 0:
        return None
    states = packed({"state_dict": trained.state_dict, "optimizers": trained.optimizers})
    return replace(trained, state_dict={}, optimizers=None), states


def _contents(previous: PreviousModel) -> dict[str, Any]:
    return {field.name: getattr(previous, field.name) for field in fields(previous)}
