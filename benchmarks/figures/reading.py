"""F0 to F5 and F7: keyed, shuffled rows against everything that reads the same files on this machine."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np

from benchmarks.contenders import modyn, scan
from benchmarks.contenders.plain_loop import PlainLoop, looped, permuted
from benchmarks.data import COLUMNS
from benchmarks.epochs import bare, loaded, stream, streamed
from benchmarks.measure import Contender, Spread, interleave, timed
from benchmarks.report import Figure
from benchmarks.rows import BATCH, digest
from benchmarks.setting import Mismatch, Setting
from fastpath import Order, SampleStore, TrainingSet

#: Figure, what it compares, the contender, what it is compared with, its goal.
_RATIOS: Final = (
    ("F0", "shuffled into given buffers, 2 threads / plain C loop", "bare, 2 threads", "plain loop, 2 threads", 0.8),
    ("F0.one_thread", "the same with 1 thread", "bare, 1 thread", "plain loop, 1 thread", 0.8),
    ("F0.sorted", "in key order, 2 threads / plain C loop", "sorted", "plain loop, sorted", 0.8),
    ("F0.stream", "BatchStream, 2 threads / the loop with keys and weights", "ours, 2 threads", "permuted loop, 2 threads", 0.7),
    ("F0.stream_one", "the same with 1 thread", "ours, 1 thread", "permuted loop, 1 thread", 0.7),
    ("F1", "keyed, shuffled / vectorised sequential scan", "ours, 2 threads", "scan", 4.0),
    ("F1.one_thread", "the same with 1 thread", "ours, 1 thread", "scan", None),
    ("F1.store", "bare gather, 2 threads / vectorised sequential scan", "bare, 2 threads", "scan", None),
    ("F2", "keyed, shuffled / Modyn's per-sample baseline", "ours, 2 threads", "modyn", 300.0),
    ("F3", "shuffled / the same rows in key order, same kernel", "bare, 2 threads", "sorted", 0.8),
    ("F3.contiguous", "shuffled / as many rows without gaps, same kernel", "bare, 2 threads", "contiguous", None),
    ("F4", "keyed, shuffled / np.take on one memory map", "ours, 2 threads", "np.take", 2.5),
    ("F7", "torch loader / bare gather", "loader", "bare, 2 threads", 0.85),
    ("F7.one_thread", "the same with 1 thread", "loader, 1 thread", "bare, 1 thread", None),
)
_PREFETCH: Final = 2


def figures(setting: Setting) -> Iterator[Figure]:
    """F0, F1, F2, F3 at a few hundred MB, F4, F7 and F5."""
    wanted = [ratio for ratio in _RATIOS if setting.wants(ratio[0])]
    with setting.data.open(threads=2) as two, setting.data.open(threads=1) as one:
        if wanted:
            check(setting, two)
            contenders = _contenders(setting, two, one)
            used = [name for name in contenders if any(name in (ratio[2], ratio[3]) for ratio in wanted)]
            rounds = interleave({name: contenders[name] for name in used}, setting.machine)
            for figure, what, name, base, goal in wanted:
                yield Figure(figure, what, rounds.ratio(name, base), "x", goal)
            for name in used:
                yield Figure(f"rows.{name.replace(', ', '_').replace(' ', '_')}", name, rounds.rate(name), "rows/s")
        if setting.wants("F5"):
            yield from _python_share(setting, one)


def check(setting: Setting, store: SampleStore) -> None:
    """Every contender's batch is ours, bit for bit. Raises ``Mismatch``."""
    data = setting.data
    chosen = np.random.default_rng(3).permutation(data.half())[:BATCH]
    mapped = np.concatenate([np.fromfile(path, np.int32) for path in data.paths]).reshape(-1, 40)
    first = digest(store.read_columns(data.keys[:BATCH], COLUMNS))
    found = {
        "scan": (first, digest(next(iter(scan.sequential(data.paths))))),
        "modyn": (first, digest(next(iter(modyn.batches(data.paths))))),
        "np.take": (
            digest(store.read_columns(chosen, COLUMNS)),
            digest(next(iter(scan.taken(mapped, data.positions(chosen))))),
        ),
    }
    loop = PlainLoop(data.paths, threads=2)
    order = np.random.default_rng(5).permutation(len(chosen))
    for name, keys, batches in (
        ("plain loop", chosen, loop.batches(chosen)),
        ("permuted loop", chosen[order], loop.permuted(chosen, np.ones(len(chosen), np.float32), order)),
    ):
        found[name] = (digest(store.read_columns(keys, COLUMNS)), digest(next(batches)))
    for batch in stream(store, chosen, shuffle=False):
        found["stream"] = (digest(store.read_columns(chosen, COLUMNS)), digest(batch.columns))
    for name, (expected, delivered) in found.items():
        if expected != delivered:
            raise Mismatch(f"{name}: its batch differs from that of SampleStore.read_columns")


def _contenders(setting: Setting, two: SampleStore, one: SampleStore) -> dict[str, Contender]:
    data = setting.data
    chosen = data.half()
    n, shuffled = len(chosen), np.random.default_rng(4).permutation(chosen)
    mapped = scan.join(data.paths, setting.work / "rows" / "joined.bin")
    positions = data.positions(shuffled)
    order = np.random.default_rng(4).permutation(n)
    return {
        "ours, 2 threads": streamed(stream(one, chosen, threads=2, prefetch=_PREFETCH), n),
        "ours, 1 thread": streamed(stream(one, chosen, threads=1, prefetch=_PREFETCH), n),
        "bare, 2 threads": bare(two, shuffled),
        "bare, 1 thread": bare(one, shuffled),
        "sorted": bare(two, chosen),
        "contiguous": bare(two, data.keys[:n]),
        "plain loop, 2 threads": looped(data.paths, shuffled, threads=2),
        "plain loop, 1 thread": looped(data.paths, shuffled, threads=1),
        "plain loop, sorted": looped(data.paths, chosen, threads=2),
        "permuted loop, 2 threads": permuted(data.paths, chosen, order, threads=2),
        "permuted loop, 1 thread": permuted(data.paths, chosen, order, threads=1),
        "scan": timed(data.n, lambda: _drain(scan.sequential(data.paths))),
        "np.take": timed(n, lambda: _drain(scan.taken(mapped, positions))),
        "modyn": timed(BATCH, lambda: _drain(islice(modyn.batches(data.paths), 1))),
        "loader": loaded(stream(one, chosen, threads=2, prefetch=_PREFETCH), n),
        "loader, 1 thread": loaded(stream(one, chosen, threads=1, prefetch=_PREFETCH), n),
    }


def _python_share(setting: Setting, store: SampleStore) -> Iterator[Figure]:
    """CPU time of a batch of one row through the loader, where the kernels have nothing to do.

    ``F5.prefetched`` is the same with a thread that prefetches: with one row a batch, most of it is the two threads' handing
    of the interpreter's lock back and forth. ``F5.difference`` is the CPU time of a batch of 65,536 less that of the kernels
    it calls (order, keys, gather), a subtraction of two much larger numbers: its spread says more about the machine.
    """
    chosen = setting.data.half()
    n = len(chosen) // BATCH * BATCH
    samples, out = TrainingSet.of(chosen[:n]), COLUMNS.allocate(BATCH)
    keys, weights, rows = np.empty(BATCH, np.uint64), np.empty(BATCH, np.float32), np.empty(BATCH, np.int64)
    order = Order(n, shuffle=True, seed=0, epoch=0)

    def kernels() -> None:
        for start in range(0, n, BATCH):
            order.positions(start, start + BATCH, out=rows)
            samples.take_into(rows, keys, weights)
            store.columns_into(keys, COLUMNS, out)

    through = loaded(stream(store, samples, threads=1, prefetch=_PREFETCH), n)
    shares = [_cpu(through) - _cpu(timed(n, kernels)) for _ in range(10)]
    for figure, prefetch, goal in (("F5", 0, 0.1), ("F5.prefetched", _PREFETCH, None)):
        small = loaded(stream(store, chosen[:2_000], batch_size=1, threads=1, prefetch=prefetch), 2_000, epochs=1)
        own = [_cpu(small) / BATCH for _ in range(6)]
        what = "Python's share of a batch: CPU time of one with one row" + (", prefetched" if prefetch else "")
        yield Figure(figure, what, Spread.of(own[1:]), "ms", goal, at_most=True)
    yield Figure("F5.difference", "CPU time of a batch of 65,536: loader less kernels", Spread.of(shares[1:]), "ms")


def _cpu(contender: Contender) -> float:
    """Milliseconds of CPU time for each batch of 65,536."""
    start = time.process_time()
    run = contender()
    return (time.process_time() - start) * 1e3 / (run.units / BATCH)


def _drain(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass
