"""What a training is, as far as it can change a bit of its result: two with the same fingerprint end with the same weights."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.surroundings import accelerator, libraries
from modyn_dagster.training.check import import_paths
from modyn_dagster.training.data import PreviousModel, Task, TrainingData
from modyn_dagster.training.source_digest import source_digest


def surroundings(device: torch.device, *, threads: int) -> dict[str, Any]:
    """Libraries, hardware and settings of the process that decide bits beside spec, data and seed; JSON-serialisable."""
    return {
        **libraries(),
        **accelerator(device),
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
    """Hex BLAKE2b digest (16 bytes) of the arguments of a training, its samples by their keys and weights."""
    digest = hashlib.blake2b(digest_size=16)
    described = {
        "spec": spec.model_dump(mode="json", exclude=HOW_FIELDS["training"]),
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
    for name, each in data.items():
        yield f"{name} {0 if each is None else len(each)}".encode()
        for partition in () if each is None else each.chosen.partitions():
            yield np.ascontiguousarray(partition.keys).tobytes()
            yield np.ascontiguousarray(partition.weights).tobytes()
    weights = start.state_dict if isinstance(start, PreviousModel) else start or {}
    for name, tensor in weights.items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
