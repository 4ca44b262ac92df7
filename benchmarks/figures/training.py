"""F8: training DLRM on keyed, shuffled samples against the same loop on the vectorised sequential scan."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.contenders import scan
from benchmarks.dlrm import Trainer
from benchmarks.epochs import stream
from benchmarks.measure import Rounds, Run, interleave
from benchmarks.report import Figure
from benchmarks.rows import BATCH, flat_label
from benchmarks.setting import Setting
from modyn_dagster.training.loader import StreamLoader

Step = Callable[[Any], Tensor]


class Loop:
    """Trains on what ``batches()`` yields. A contender that also remembers how long it waited for data."""

    def __init__(self, batches: Callable[[], Iterable[Any]], step: Step, n_samples: int) -> None:
        self._batches, self._step, self._n = batches, step, n_samples
        self.waits: list[Run] = []

    def __call__(self) -> Run:
        """One pass over the batches; on CUDA until the device is done."""
        waited, loss = 0.0, torch.zeros(())
        start = asked = time.perf_counter()
        for batch in self._batches():
            waited += time.perf_counter() - asked
            loss = self._step(batch)
            asked = time.perf_counter()
        waited += time.perf_counter() - asked
        value = float(loss)
        seconds = time.perf_counter() - start
        if not np.isfinite(value):
            raise RuntimeError(f"the loss is {value}")
        self.waits.append(Run(self._n, waited))
        return Run(self._n, seconds)


def compare(figure: str, what: str, ours: Loop, base: Loop, setting: Setting) -> Iterator[Figure]:
    """Ratios of samples a second, and of the time spent waiting for data."""
    rounds = interleave({"ours": ours, "base": base}, setting.machine)
    n = len(rounds.runs["ours"])
    waits = Rounds({"ours": ours.waits[-n:], "base": base.waits[-n:]})
    shares = ", ".join(
        f"{name} waits {waits.seconds(key).value / rounds.seconds(key).value:.2%} of the time"
        for key, name in (("ours", "ours"), ("base", "the scan"))
    )
    yield Figure(figure, f"{what}: samples/s, keyed and shuffled / scan", rounds.ratio("ours", "base"), "x", 0.98)
    yield Figure(
        f"{figure}.waiting", f"{what}: time waiting for data, scan / ours", waits.ratio("ours", "base"), "x", 1.0, note=shares
    )
    yield Figure(f"rows.{figure}.ours", f"{what}, ours", rounds.rate("ours"), "samples/s")
    yield Figure(f"rows.{figure}.scan", f"{what}, scan", rounds.rate("base"), "samples/s")


def devices() -> list[str]:
    """The CPU, and CUDA where there is a device."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def figures(setting: Setting) -> Iterator[Figure]:
    """F8 on the CPU with all its cores, and F8.cuda where there is a device."""
    threads = torch.get_num_threads()
    for device in devices():
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        steps = setting.sizes.steps * (20 if device == "cuda" else 1)
        steps = min(steps, setting.data.n // BATCH)
        yield from _dlrm(setting, device, steps)
        torch.set_num_threads(threads)


def _dlrm(setting: Setting, device: str, steps: int) -> Iterator[Figure]:
    data = setting.data
    chosen = np.sort(np.random.default_rng(7).choice(data.keys, steps * BATCH, replace=False))
    with data.open(threads=1) as store:
        loader = StreamLoader(lambda allocate: stream(store, chosen, allocate=allocate), device=device)
        epoch = 0

        def keyed() -> Iterable[Mapping[str, Tensor]]:
            nonlocal epoch
            epoch += 1
            loader.set_epoch(epoch)
            return (flat_label(batch) for batch in loader)

        def scanned() -> Iterable[Mapping[str, Tensor]]:
            for batch in islice(scan.sequential(data.paths), steps):
                yield {name: part.to(device) for name, part in batch.items()}

        ours = Loop(keyed, Trainer(device).step, steps * BATCH)
        base = Loop(scanned, Trainer(device).step, steps * BATCH)
        yield from compare("F8" if device == "cpu" else f"F8.{device}", f"DLRM on {device}", ours, base, setting)
