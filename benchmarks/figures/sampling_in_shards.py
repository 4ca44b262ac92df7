"""Seconds per batch of samplers in shards, in the form of Figures 7 to 9 of Hentschel, Haas, Tian (EDBT 2018).

Every contender is saturated first: batches of the same size, half of the sample's as in the paper, and decay 0.07. Keys come
with gaps, so that they travel as numbers of 8 bytes each; ``ranges`` are the keys of whole batches, which travel as two numbers.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from benchmarks.contenders.central_decisions import CentralDRTBS
from benchmarks.contenders.key_value_reservoir import KeyValueRTBS
from benchmarks.contenders.postgres_slots import PostgresSlots
from benchmarks.measure import Contender, Machine, Run, interleave
from benchmarks.report import Figure
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.time_biased import DRTBS, DTTBS, RTBS, TTBS, Sampler

DECAY: Final = 0.07
SHARDS: Final = 8
#: Batches until a sample of twice a batch is saturated: the weight then exceeds it.
_WARM_UP: Final = 4


#: A batch, whole or in parts.
Content = TypeVar("Content")


def variants(batch: int, pool: Pool, url: str | None, machine: Machine) -> Iterator[Figure]:
    """Figure 7: seconds per batch by way of deciding and of keeping the reservoir; without ``url``, no key-value stores."""
    n = 2 * batch
    contenders = {
        "cent_cp": _in_shards(CentralDRTBS(n, DECAY, 0, shards=SHARDS, pool=pool), batch),
        "dist_cp": _in_shards(DRTBS(n, DECAY, 0, shards=SHARDS, pool=pool), batch),
        "dist_cp.in_process": _in_shards(DRTBS(n, DECAY, 0, shards=SHARDS), batch),
        "d_ttbs": _in_shards(DTTBS(n, DECAY, batch, 0, shards=SHARDS, pool=pool), batch),
        "d_ttbs.in_process": _in_shards(DTTBS(n, DECAY, batch, 0, shards=SHARDS), batch),
        "one_thread": _on_keys(RTBS(n, DECAY, 0), batch),
        "one_thread.ttbs": _on_keys(TTBS(n, DECAY, batch, 0), batch),
    }
    if url is not None:
        contenders = {f"cent_kv_{join.lower()}": _in_store(n, url, pool, join, batch) for join in ("RJ", "CJ")} | contenders
    yield from _seconds("fig7", contenders, f"batches of {batch:,}, n = {n:,}, {pool.workers} workers", machine)


def workers(batch: int, pools: Mapping[str, Pool], machine: Machine) -> Iterator[Figure]:
    """Figure 8: seconds per batch by number of workers, and of one thread beside them."""
    n = 2 * batch
    contenders: dict[str, Contender] = {}
    for name, pool in pools.items():
        contenders[name] = _in_shards(DRTBS(n, DECAY, 0, shards=SHARDS, pool=pool), batch)
        contenders[f"{name}.ten"] = _ten_batches(DRTBS(n, DECAY, 0, shards=SHARDS, pool=pool), batch)
    contenders["one_thread"] = _on_keys(RTBS(n, DECAY, 0), batch)
    yield from _seconds("fig8", contenders, f"batches of {batch:,}, n = {n:,}", machine)


def batch_sizes(batches: Sequence[int], n: int, pool: Pool, machine: Machine) -> Iterator[Figure]:
    """Figure 9: seconds per batch by its size, the sample's size fixed."""
    for batch in batches:
        # The paper's, or a total weight of three times the sample, which small batches can hold as well.
        decay = min(DECAY, -math.log1p(-min(0.9, batch / (3 * n))))
        full = 3 * n
        contenders = {
            f"pool.{batch}": _in_shards(DRTBS(n, decay, 0, shards=SHARDS, pool=pool), batch, full),
            f"ranges.{batch}": _in_shards(DRTBS(n, decay, 0, shards=SHARDS, pool=pool), batch, full, gaps=False),
            f"in_process.{batch}": _in_shards(DRTBS(n, decay, 0, shards=SHARDS), batch, full),
            f"one_thread.{batch}": _on_keys(RTBS(n, decay, 0), batch, full),
        }
        yield from _seconds("fig9", contenders, f"batches of {batch:,}, n = {n:,}, {pool.workers} workers", machine)


def _seconds(figure: str, contenders: Mapping[str, Contender], what: str, machine: Machine) -> Iterator[Figure]:
    rounds = interleave(contenders, machine)
    for name in contenders:
        yield Figure(f"{figure}.{name}", what, rounds.seconds(name), "s")


def _keys(batch: int, *, gaps: bool = True) -> KeyArray:
    return np.arange(batch, dtype=np.uint64) * np.uint64(1 + gaps)


def _parts(batch: int, *, gaps: bool = True) -> list[KeyArray]:
    return np.array_split(_keys(batch, gaps=gaps), SHARDS)


def _in_shards(sampler: DRTBS | DTTBS, batch: int, fill: int = 0, *, gaps: bool = True) -> Contender:
    def update(parts: Sequence[KeyArray]) -> None:
        sampler.update_parts(parts)
        sampler.flush()

    return _contender(update, _parts(batch, gaps=gaps), _parts(fill) if fill else None)


def _ten_batches(sampler: DRTBS, batch: int) -> Contender:
    """Ten updates for one call per shard, as where a trigger fires every ten batches; seconds of one."""
    parts = _parts(batch)
    for _ in range(_WARM_UP):
        sampler.update_parts(parts)

    def run() -> Run:
        start = time.perf_counter()
        for _ in range(10):
            sampler.update_parts(parts)
        sampler.flush()
        return Run(batch, (time.perf_counter() - start) / 10)

    return run


def _in_store(n: int, url: str, pool: Pool, join: str, batch: int) -> Contender:
    store = PostgresSlots(url, f"reservoir_{join.lower()}")
    store.make()
    sampler = KeyValueRTBS(n, DECAY, 0, store=store, pool=pool, join="RJ" if join == "RJ" else "CJ")
    return _contender(sampler.update_parts, _parts(batch), None)


def _on_keys(sampler: Sampler, batch: int, fill: int = 0) -> Contender:
    return _contender(sampler.update, _keys(batch), _keys(fill) if fill else None)


def _contender(update: Callable[[Content], object], batch: Content, first: Content | None) -> Contender:
    """Seconds of one update, once the sample is saturated: after ``first``, or after some batches."""
    for content in [batch] * _WARM_UP if first is None else [first, batch]:
        update(content)

    def run() -> Run:
        start = time.perf_counter()
        update(batch)
        return Run(1, time.perf_counter() - start)

    return run
