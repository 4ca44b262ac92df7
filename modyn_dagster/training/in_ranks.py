"""Training of one model by a group of ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from modyn_dagster.distributed.protocols import Group, Rank, Resources
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.reproducibility.devices import resolve_device
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData
from modyn_dagster.training.loop.trainer import train
from modyn_dagster.training.progress_file import followed_progress, progress_teller
from modyn_dagster.training.states import packed, unpacked
from modyn_dagster.training.team.rules import check_ranks
from modyn_dagster.training.team.team import team_of

#: Longest wait of a rank for the others, in seconds.
TIMEOUT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of a training, for the process of a rank.

    Attributes:
        spec: spec of the training.
        data: training set.
        calibrate: samples of early stopping.
        start: weights and states to start from, packed: ``previous`` or ``initial``.
        checkpoint: file of the checkpoint, which all ranks can read.
        given: the arguments of ``train`` that are plain values.
        timeout: longest wait of a rank for the others, in seconds.
        progress: file that rank 0 tells its progress to; None for none.
    """

    spec: TrainingSpec
    data: TrainingData
    calibrate: TrainingData | None
    start: bytes
    checkpoint: CheckpointFile | None
    given: Mapping[str, Any]
    timeout: float
    progress: Path | None


def train_in_ranks(  # noqa: PLR0913 - all but the first three are given by name
    group: Group,
    spec: TrainingSpec,
    data: TrainingData,
    *,
    task: Task,
    seed: int,
    threads: int,
    source: str,
    previous: PreviousModel | None = None,
    initial: Mapping[str, Tensor] | None = None,
    calibrate: TrainingData | None = None,
    checkpoint: CheckpointFile | None = None,
    progress: ProgressCallback | None = None,
    timeout: float = TIMEOUT,
) -> TrainedModel:
    """Train one model in ``spec.ranks`` processes of a group, as ``train`` does in this one; only rank 0 writes checkpoints.

    The result depends on the number of ranks, and not on the group. ``progress`` is called in another thread, a few times a
    second, where the ranks run on this machine. ``timeout`` is the longest wait of a rank for the others, in seconds: also for
    one that reads the training set more slowly.

    Raises:
        ConfigError: ranks cannot share this training.
        WorkerLost: a rank died, or did not answer in time. The next attempt continues at the checkpoint.
    """
    check_ranks(spec, source=source)
    start = {"previous": None if previous is None else _contents(previous), "initial": None if initial is None else dict(initial)}
    given = {"task": task, "seed": seed, "threads": threads, "source": source}
    gpus = 1 if resolve_device(spec.device, source=source, field="training.device") == "cuda" else 0
    with followed_progress(progress) as path:
        order = Order(spec, data, calibrate, packed(start), checkpoint, given, timeout, path)
        results = group.run(train_rank, order, spec.ranks, Resources(cpus=threads, gpus=gpus))
    trained, states = next(result for result in results if result is not None)
    return replace(trained, **unpacked(states))


def train_rank(rank: Rank, order: Order) -> tuple[TrainedModel, bytes] | None:
    """Train as one of the ranks; the model and its packed tensors on rank 0, None on the others."""
    start = unpacked(order.start)
    previous = None if start["previous"] is None else PreviousModel(**start["previous"])
    device = torch.device(resolve_device(order.spec.device, source=order.given["source"], field="training.device"))
    told = order.progress if rank.index == 0 else None
    with team_of(rank, device, timeout=order.timeout) as team, progress_teller(told) as progress:
        trained = train(
            order.spec,
            order.data,
            previous=previous,
            initial=start["initial"],
            calibrate=order.calibrate,
            checkpoint=order.checkpoint,
            progress=progress,
            team=team,
            **order.given,
        )
    if rank.index > 0:
        return None
    states = packed({"state_dict": trained.state_dict, "optimizers": trained.optimizers})
    return replace(trained, state_dict={}, optimizers=None), states


def _contents(previous: PreviousModel) -> dict[str, Any]:
    return {field.name: getattr(previous, field.name) for field in fields(previous)}
