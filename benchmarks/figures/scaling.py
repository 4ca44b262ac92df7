"""F3 at 4 GiB, F11 and F12: speed-up by threads, cost of gigabytes, and time to resume an epoch in its middle.

A plain C loop over the same rows shows what the machine makes of the same ratio.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.contenders.plain_loop import looped, permuted
from benchmarks.data import Data
from benchmarks.epochs import bare, stream, streamed
from benchmarks.measure import Run, Spread, interleave
from benchmarks.report import Figure, with_least
from benchmarks.rows import BATCH
from benchmarks.setting import Setting
from fastpath import Partition, TrainingSet
from modyn_dagster.selection.training_set import write_training_set

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Samples of a training set's partition.
_PARTITION: Final = 1_000_000
#: Buffers of a batch that the ring may hold beside those the consumer keeps: prefetched ones, one being filled, one in use.
_RING: Final = 5
#: Column tensors, keys and weights of one sample, in bytes.
_SAMPLE_BYTES: Final = 13 * 4 + 26 * 8 + 4 + 8 + 4


def figures(setting: Setting) -> Iterator[Figure]:
    """F3.4GiB, F0.4GiB, F12 and F11 by part, then F11."""
    yield from with_least("F11", _parts(setting)) if setting.wants("F11") else _parts(setting)


def _parts(setting: Setting) -> Iterator[Figure]:
    if setting.wants("F11"):
        yield from _threads(setting)
    if setting.wants("F3", "F11"):
        yield from _sizes(setting)
    if setting.wants("F11", "F12"):
        samples = _training_set(setting, setting.large.part(setting.sizes.scaling_files[1]))
        if setting.wants("F12"):
            yield _resume(setting, samples)
        if setting.wants("F11"):
            yield _memory(samples)


def _threads(setting: Setting) -> Iterator[Figure]:
    data = setting.data
    chosen = data.half()
    shuffled = np.random.default_rng(4).permutation(chosen)
    with data.open(threads=2) as two, data.open(threads=1) as one:
        rounds = interleave(
            {
                "ring, 2": streamed(stream(one, chosen, threads=2), len(chosen)),
                "ring, 1": streamed(stream(one, chosen, threads=1), len(chosen)),
                "bare, 2": bare(two, shuffled),
                "bare, 1": bare(one, shuffled),
                "loop, 2": looped(data.paths, shuffled, threads=2),
                "loop, 1": looped(data.paths, shuffled, threads=1),
            },
            setting.machine,
        )
    yield Figure("F11.ring", "2 threads / 1 thread, through the ring", rounds.ratio("ring, 2", "ring, 1"), "x", 1.3)
    yield Figure("F11.kernel", "2 threads / 1 thread, bare kernel", rounds.ratio("bare, 2", "bare, 1"), "x", 1.5)
    yield Figure("F11.kernel_loop", "the same of a plain C loop", rounds.ratio("loop, 2", "loop, 1"), "x")


def _sizes(setting: Setting) -> Iterator[Figure]:
    """Random order over gigabytes: against key order, and per row against a small dataset. Resident memory has huge pages."""
    large = setting.large
    small, most = (large.part(n) for n in setting.sizes.scaling_files)
    chosen = large.half()
    shuffled = np.random.default_rng(4).permutation(chosen)
    orders = {data.n: np.random.default_rng(4).permutation(data.n) for data in (small, most)}
    with large.open(threads=2) as all_rows, small.open(threads=2) as a, most.open(threads=2) as b:
        contenders = {
            "large": bare(all_rows, shuffled),
            "large, sorted": bare(all_rows, chosen),
            "small": streamed(stream(a, small.keys, threads=2), small.n),
            "most": streamed(stream(b, most.keys, threads=2), most.n),
            "most, blocks": streamed(stream(b, most.keys, threads=2, shuffle="blocks"), most.n),
            "large, loop": looped(large.paths, shuffled, threads=2),
            "large, sorted, loop": looped(large.paths, chosen, threads=2),
            "small, loop": permuted(small.paths, small.keys, orders[small.n], threads=2),
            "most, loop": permuted(most.paths, most.keys, orders[most.n], threads=2),
        }
        rounds = interleave(contenders, setting.machine)
    gib = f"{large.n * 160 / 2**30:.1f} GiB"
    yield Figure("F3.4GiB", f"shuffled / the same rows in key order, {gib}", rounds.ratio("large", "large, sorted"), "x", 0.6)
    yield Figure("F3.4GiB_loop", "the same of a plain C loop", rounds.ratio("large, loop", "large, sorted, loop"), "x")
    yield Figure("F0.4GiB", f"shuffled, {gib}, 2 threads / plain C loop", rounds.ratio("large", "large, loop"), "x", 0.8)
    what = f"rows/s at {most.n / 1e6:.3g} M rows / at {small.n / 1e6:.3g} M rows"
    yield Figure("F11.rows", f"{what}, whole set shuffled", rounds.ratio("most", "small"), "x", 0.8)
    yield Figure(
        "F11.rows_loop", "the same of a plain C loop with keys and weights", rounds.ratio("most, loop", "small, loop"), "x"
    )
    yield Figure("F11.rows_blocks", f"{what}, shuffled in blocks", rounds.ratio("most, blocks", "small"), "x")
    for name in contenders:
        yield Figure(f"rows.scaling.{name.replace(', ', '_')}", name, rounds.rate(name), "rows/s")
    with most.open(threads=2, resident=True) as resident, small.open(threads=2) as a:
        pair = {"resident": streamed(stream(resident, most.keys, threads=2), most.n)}
        rounds = interleave({**pair, "small": streamed(stream(a, small.keys, threads=2), small.n)}, setting.machine)
    yield Figure("F11.rows_resident", f"{what}, resident", rounds.ratio("resident", "small"), "x")


def _training_set(setting: Setting, data: Data) -> tuple[Path, str, Data]:
    """All keys of the data on disk, partition by partition."""
    path = setting.work / "scaling.arrow"
    pieces = (data.keys[start : start + _PARTITION] for start in range(0, data.n, _PARTITION))
    written = write_training_set(path, (Partition(keys, np.ones(len(keys), np.float32)) for keys in pieces))
    return path, written.checksum, data


def _resume(setting: Setting, given: tuple[Path, str, Data]) -> Figure:
    """From a training set on disk, opened anew, to the batch in the middle of its shuffled epoch; the store is open and warm."""
    path, checksum, data = given
    with data.open(threads=2) as store:
        state = stream(store, TrainingSet.open(path, checksum), threads=2).state_dict()
        state["position"] = data.n // BATCH // 2

        def resume() -> Run:
            start = time.perf_counter()
            batches = stream(store, TrainingSet.open(path, checksum), threads=2)
            batches.load_state_dict(state)
            number = next(iter(batches)).number
            seconds = time.perf_counter() - start
            batches.close()
            if number != state["position"]:
                raise RuntimeError(f"resumed at batch {number}, expected {state['position']}")
            return Run(1, seconds)

        seconds = interleave({"resume": resume}, setting.machine).seconds("resume")
    milliseconds = Spread(*(value * 1e3 for value in (seconds.value, seconds.min, seconds.max)))
    return Figure("F12", f"resume in the middle of {data.n / 1e6:.3g} M", milliseconds, "ms", 50.0, at_most=True)


def _memory(given: tuple[Path, str, Data]) -> Figure:
    """What an epoch adds to a process's anonymous memory, against the index and the ring of buffers."""
    path, checksum, data = given
    request = {
        "home": str(data.home),
        "root": str(data.root),
        "files": len(data.paths),
        "training_set": str(path),
        "checksum": checksum,
    }
    command = [sys.executable, "-m", "benchmarks.figures.memory", json.dumps(request)]
    done: Any = json.loads(subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
    found = [taken / 1e6 for taken in done["bytes"]]
    indexes = sum(file.stat().st_size for file in (data.home / "batches/criteo").glob("*.arrow"))
    limit = (indexes + _RING * BATCH * _SAMPLE_BYTES) / 1e6
    what = f"anonymous memory of an epoch of {data.n / 1e6:.3g} M rows; goal: index + ring"
    return Figure("F11.memory", what, Spread.of(found), "MB", limit, at_most=True)
