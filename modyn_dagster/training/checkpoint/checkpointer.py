"""Checkpoint times, and the fingerprint that ties a checkpoint to one training."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.reproducibility.environment import environment_facts
from modyn_dagster.spec.learning.device import without_number
from modyn_dagster.spec.learning.optimizers import CheckpointSpec
from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.checkpoint.parts import LOSSES, TRAINING, Part
from modyn_dagster.training.data import PreviousModel, Task, TrainingData
from modyn_dagster.training.user_code import import_paths
from modyn_dagster.values.digest import source_digest


def training_environment(device: torch.device, *, threads: int) -> dict[str, Any]:
    """Libraries, hardware and settings of the process that decide bits beside spec, data and seed; JSON-serialisable."""
    return {
        **environment_facts(device),
        "mkl": torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]  # torch has no type for it
        "mkldnn": bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),  # type: ignore[no-untyped-call]  # torch has no type for it
        "threads": threads,
        "interop_threads": torch.get_num_interop_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "flush_denormal": bool(torch.tensor(1e-310, dtype=torch.float64).mul(1.0) == 0),
    }


def fingerprint(
    spec: TrainingSpec,
    data: Mapping[str, TrainingData | None],
    start: PreviousModel | Mapping[str, Tensor] | None,
    task: Task,
    *,
    seed: int,
    surroundings: Mapping[str, Any],
) -> str:
    """Digest the arguments of a training, samples by keys and weights: hex BLAKE2b of 16 bytes."""
    digest = hashlib.blake2b(digest_size=16)
    described = {
        "spec": without_number(spec.model_dump(mode="json", exclude=HOW_FIELDS["training"])),
        "task": [task.kind, task.n_classes, sorted(task.exclude)],
        "seed": seed,
        "code": source_digest(path for _, path in import_paths(spec)),
        "surroundings": dict(surroundings),
    }
    digest.update(json.dumps(described, sort_keys=True).encode())
    for part in _bytes(data, start):
        digest.update(part)
    return digest.hexdigest()


def _bytes(
    data: Mapping[str, TrainingData | None], start: PreviousModel | Mapping[str, Tensor] | None
) -> Iterator[bytes | memoryview]:
    for name, samples in data.items():
        yield f"{name} {0 if samples is None else len(samples)}".encode()
        for partition in () if samples is None else samples.chosen.partitions():
            yield np.ascontiguousarray(partition.keys).tobytes()
            yield np.ascontiguousarray(partition.weights).tobytes()
    weights = start.state_dict if isinstance(start, PreviousModel) else start or {}
    for name, tensor in weights.items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Checkpointer:
    """Writer of checkpoints at intervals of steps or minutes, and reader of the last one.

    Args:
        file: file of the checkpoint; None writes none.
        spec: intervals; None neither writes nor reads checkpoints.
        fingerprint: computes the fingerprint of the training.
    """

    def __init__(self, file: CheckpointFile | None, spec: CheckpointSpec | None, fingerprint: Callable[[], str]) -> None:
        self._file, self._spec = None if spec is None else file, spec
        self._fingerprint = fingerprint() if self._file is not None else ""
        self._saved_at, self._step = time.monotonic(), 0

    def load(self) -> Any | None:
        """Load the state of the last checkpoint; None at the beginning of a training."""
        return None if self._file is None else self._file.load(self._fingerprint)

    def kept(self, part: Part, find: Callable[[CheckpointFile | None], Any]) -> Any:
        """Return the value of ``find``, or load it if it was computed before a kill; ``find`` resumes from its file."""
        if self._file is None:
            return find(None)
        done, unfinished = self._file.beside(LOSSES[part]), self._file.beside(TRAINING[part])
        value = done.load(self._fingerprint)
        if value is None:
            value = find(unfinished)
            done.save(self._fingerprint, value)
            unfinished.remove()
        return value

    def after(self, n_steps: int, state: Callable[[], Any]) -> None:
        """Write a checkpoint after ``n_steps`` optimizer steps, if one is due."""
        if self._file is None or n_steps == self._step or not self._is_due(n_steps):
            return
        self._file.save(self._fingerprint, state())
        self._saved_at, self._step = time.monotonic(), n_steps

    def _is_due(self, n_steps: int) -> bool:
        spec = self._spec
        if spec is None:
            return False
        if spec.steps is not None and n_steps % spec.steps == 0:
            return True
        return spec.minutes is not None and time.monotonic() - self._saved_at >= 60 * spec.minutes
