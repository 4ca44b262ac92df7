"""F10: rows in key order from files that are not in memory, by the share of rows requested."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.contenders.cold_reads import CONTENDERS, Unavailable, forget
from benchmarks.data import Data, Keys
from benchmarks.measure import Contender, Run, interleave
from benchmarks.report import Figure, short
from benchmarks.rows import ROW
from benchmarks.setting import Mismatch, Setting

Fetched = npt.NDArray[np.uint8]

_SHARES: Final = (0.001, 0.01, 0.1, 0.5)


def figures(setting: Setting) -> Iterator[Figure]:
    """F10 by share of rows wanted, then F10: the smallest."""
    data, found = setting.data, []
    for share in _SHARES:
        wanted = np.sort(np.random.default_rng(6).choice(data.keys, int(data.n * share), replace=False))
        contenders, missing = _contenders(data, wanted)
        rounds = interleave(contenders, setting.machine, warm_up=0)
        others = {name: rounds.seconds(name).value for name in contenders if name != "ours"}
        best = min(others, key=lambda name: others[name])
        ratio = rounds.ratio("ours", best)
        found.append(ratio)
        seconds = ", ".join(f"{name} {short(value * 1e3)} ms" for name, value in sorted(others.items(), key=lambda one: one[1]))
        note = f"ours {short(rounds.seconds('ours').value * 1e3)} ms; {seconds}{missing}"
        yield Figure(
            f"F10.{share:.1%}", f"cold, {share:.1%} of rows: speed over the best other, {best}", ratio, "x", 0.9, note=note
        )
    yield Figure("F10", "cold: the smallest of these", min(found, key=lambda ratio: ratio.value), "x", 0.9)


def _contenders(data: Data, wanted: Keys) -> tuple[dict[str, Contender], str]:
    """Those this machine can run, each from cold files, and a word about the others."""
    ordinals, positions = (wanted >> np.uint64(32)).astype(np.int64), (wanted & np.uint64(2**32 - 1)).astype(np.int64)
    file, offset = (ordinals - 1).astype(np.int32), positions * ROW.itemsize

    ways: dict[str, Contender] = {"ours": _ours(data, wanted)}
    with data.open() as store:
        expected, missing = store.read_blobs(wanted), ""
    for name, read in CONTENDERS.items():
        way = partial(read, data.paths, file, offset, ROW.itemsize)
        try:
            if way().tobytes() != expected.buffer.tobytes():
                raise Mismatch(f"{name}: its rows differ from ours")
            ways[name] = _from_cold(data.paths, len(wanted), way)
        except Unavailable as error:
            missing += f"; {name}: {error}"
    return ways, missing


def _ours(data: Data, wanted: Keys) -> Contender:
    """The others are told file and offset; so the indexes that say so are open, and the files are not."""

    def run() -> Run:
        forget(data.paths)
        with data.open() as store:
            store.check(wanted)
            start = time.perf_counter()
            store.read(wanted)
            return Run(len(wanted), time.perf_counter() - start)

    return run


def _from_cold(paths: Sequence[Path], n: int, way: Callable[[], Fetched]) -> Contender:
    def run() -> Run:
        forget(paths)
        start = time.perf_counter()
        way()
        return Run(n, time.perf_counter() - start)

    return run
