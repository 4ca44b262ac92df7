"""F6: the libraries one would pick instead, asked for the same shuffled rows of the same data."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks import data
from benchmarks.contenders.remote import Missing, Remote
from benchmarks.epochs import stream, streamed
from benchmarks.measure import Contender, Run, interleave
from benchmarks.report import Figure, with_least
from benchmarks.rows import BATCH, digest
from benchmarks.setting import Mismatch, Setting

#: Module, name and goal of each.
_LIBRARIES: Final = (
    ("lance", "Lance", 100.0),
    ("array_record", "array_record", 100.0),
    ("lmdb", "LMDB", 100.0),
    ("mosaicml", "MosaicML Streaming", 500.0),
    ("litdata", "LitData", 500.0),
    ("hf", "HF datasets (torch)", 500.0),
)
#: Seconds of one repetition, and rows at least: the slowest deliver a few hundred rows a second.
_SECONDS: Final = 0.5
_LEAST: Final = 256


@dataclass
class _Asked:
    """A library, and how many rows it is asked for at once: a whole batch where it is fast enough."""

    remote: Remote
    shuffled: npt.NDArray[np.int64]
    n: int = _LEAST

    def __call__(self) -> Run:
        run, _ = self.remote.take(self.shuffled[: self.n])
        self.n = int(np.clip(run.rate * _SECONDS, _LEAST, min(BATCH, len(self.shuffled))))
        return run


def figures(setting: Setting) -> Iterator[Figure]:
    """F6 by library, then F6."""
    yield from with_least("F6", _by_library(setting))


def _by_library(setting: Setting) -> Iterator[Figure]:
    rows = data.make(setting.work / "library_rows", setting.sizes.library_rows, seed=2)
    data.warm(rows)
    chosen = np.random.default_rng(5).permutation(rows.keys)
    with rows.open(threads=2) as store, ExitStack() as stack:
        remotes = [Remote(module, setting.python, setting.work / "libraries", rows.paths) for module, _, _ in _LIBRARIES]
        for remote in remotes:
            stack.callback(remote.close)
        asked: dict[str, Contender] = {}
        notes: dict[str, str] = {}
        expected = digest(store.read_columns(chosen[:_LEAST], data.COLUMNS))
        for remote in remotes:
            try:
                notes[remote.name] = f"version {remote.ready()}"
                asked[remote.name] = _checked(remote, rows.positions(chosen), expected)
            except Missing as error:
                notes[remote.name] = f"skipped: {error}"
        ours = streamed(stream(store, rows.keys, threads=2), rows.n)
        rounds = interleave({"ours": ours, **asked}, setting.machine)
        for module, name, goal in _LIBRARIES:
            found = module in asked
            ratio = rounds.ratio("ours", module) if found else None
            yield Figure(f"F6.{module}", f"keyed, shuffled / {name}", ratio, "x", goal, note=notes[module])
            if ratio is not None:
                yield Figure(f"rows.{module}", name, rounds.rate(module), "rows/s")


def _checked(remote: Remote, shuffled: npt.NDArray[np.int64], expected: str) -> _Asked:
    _, found = remote.take(shuffled[:_LEAST], check=True)
    if found != expected:
        raise Mismatch(f"{remote.name}: its batch differs from that of SampleStore.read_columns")
    return _Asked(remote, shuffled)
