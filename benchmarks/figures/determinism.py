"""Deterministic against free training: load, forward, backward (Figure 13 of the MMlib paper, EDBT 2023)."""

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.contenders.hand_written import Rows
from benchmarks.measure import Machine, Run, Spread, interleave
from benchmarks.report import Figure
from fastpath import TrainingSet
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainingData, train

#: Stages of a step, as the paper has them.
_STAGES = {"load": ("data", "to_device"), "forward": ("forward",), "backward": ("backward",)}
_ROUNDS = 5


def determinism(machine: Machine, *, quick: bool) -> Iterator[Figure]:
    """``determinism.<model>.<stage>``: milliseconds of a step, free and deterministic, and their ratio; there is no goal."""
    side, batch, steps = (32, 4, 2) if quick else (64, 16, 4)
    for name in ("resnet18",) if quick else ("resnet18", "resnet50", "resnet152"):
        yield from _compared(name, side, batch, steps, machine)


def _compared(name: str, side: int, batch: int, steps: int, machine: Machine) -> Iterator[Figure]:
    n = batch * steps
    rng = np.random.default_rng(0)
    rows = Rows({"x": rng.normal(size=(n, 3 * side * side)).astype(np.float32)}, np.arange(n) % 10)
    data = TrainingData(TrainingSet.of(keys_of(1, np.arange(n))), rows)
    seconds: dict[str, list[dict[str, float]]] = {"free": [], "deterministic": []}

    def contender(kind: str) -> Run:
        model = {"name": name, "stem": "small", "shape": [3, side, side]}
        content = {"model": model, "batch_size": batch, "standardize": False, "deterministic": kind == "deterministic"}
        spec, threads = TrainingSpec.model_validate(content), torch.get_num_threads()
        found = train(spec, data, task=Task("class", n_classes=10), seed=0, threads=threads, source="benchmark")
        seconds[kind].append(found.seconds)
        return Run(steps, found.seconds["forward"] + found.seconds["backward"])

    interleave({kind: lambda kind=kind: contender(kind) for kind in seconds}, machine, rounds=_ROUNDS, warm_up=1)  # type: ignore[misc]
    for stage, parts in _STAGES.items():
        spent = {kind: [sum(each[part] for part in parts) for each in seconds[kind][-_ROUNDS:]] for kind in seconds}
        for kind, found in spent.items():
            milliseconds = Spread.of([1e3 * value / steps for value in found])
            yield Figure(f"determinism.{name}.{stage}.{kind}", f"{name}, {stage}, {kind}", milliseconds, "ms/step")
        ratio = Spread.of([fixed / free for free, fixed in zip(spent["free"], spent["deterministic"], strict=True)])
        yield Figure(f"determinism.{name}.{stage}.ratio", f"{name}, {stage}: deterministic / free", ratio, "x")
