"""Deterministic against free training: load, forward, backward (Figure 13 of the MMlib paper, EDBT 2023)."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import torch

from benchmarks.contenders.hand_written import Rows
from benchmarks.measure import ROUNDS, Machine, Run, Spread, interleave
from benchmarks.report import Figure
from fastpath import TrainingSet
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainingData, train

#: Stages of a step, as the paper has them.
_STAGES: Final = {"load": ("data", "to_device"), "forward": ("forward",), "backward": ("backward",)}
_KINDS: Final = ("free", "deterministic")
#: Steps before those that count: the first one asks for all its memory.
_WARM: Final = 1


def determinism(machine: Machine, *, quick: bool) -> Iterator[Figure]:
    """``determinism.<model>.<stage>``: milliseconds of a step, free and deterministic, and their ratio; there is no goal.

    On the CPU, where a stage's time is its own. The paper's images have 224 pixels and its batches 64 of them.
    """
    side, batch, steps = (32, 4, 1) if quick else (64, 8, 2)
    for name in ("resnet18",) if quick else ("resnet18", "resnet50", "resnet152"):
        yield from _compared(name, side, batch, steps, machine)


def _compared(name: str, side: int, batch: int, steps: int, machine: Machine) -> Iterator[Figure]:
    rows = Rows({"x": np.random.default_rng(0).normal(size=(batch, 3 * side * side)).astype(np.float32)}, np.arange(batch) % 10)
    data = TrainingData(TrainingSet.of(keys_of(1, np.arange(batch))), rows)
    seconds: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}

    def contender(kind: str) -> Run:
        content = {"model": {"name": name, "shape": [3, side, side]}, "batch_size": batch, "epochs": _WARM + steps}
        fixed = {"standardize": False, "deterministic": kind == "deterministic"}
        spec, threads = TrainingSpec.model_validate(content | fixed), torch.get_num_threads()
        found = train(spec, data, task=Task("class", n_classes=10), seed=0, threads=threads, source="benchmark")
        counted = [epoch["seconds"] for epoch in found.epochs[_WARM:]]
        parts = {stage: sum(each.get(part, 0.0) for each in counted for part in of) for stage, of in _STAGES.items()}
        seconds[kind].append(parts)
        return Run(steps, sum(parts.values()))

    interleave({kind: partial(contender, kind) for kind in _KINDS}, machine, rounds=ROUNDS, warm_up=0)
    shown = f"{name}, {batch} images of {side} pixels"
    for stage in _STAGES:
        spent = {kind: [each[stage] for each in seconds[kind]] for kind in _KINDS}
        for kind, found in spent.items():
            milliseconds = Spread.of([1e3 * value / steps for value in found])
            yield Figure(f"determinism.{name}.{stage}.{kind}", f"{shown}, {stage}, {kind}", milliseconds, "ms/step")
        ratio = Spread.of([fixed / free for free, fixed in zip(spent["free"], spent["deterministic"], strict=True)])
        yield Figure(f"determinism.{name}.{stage}.ratio", f"{shown}, {stage}: deterministic / free", ratio, "x")
