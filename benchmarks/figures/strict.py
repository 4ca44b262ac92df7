"""F17: the cost of strict reads, in the first pass of a store and in later ones."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from benchmarks.data import COLUMNS, Data, Keys
from benchmarks.measure import Contender, interleave, timed
from benchmarks.report import Figure
from benchmarks.rows import BATCH
from benchmarks.setting import Setting
from fastpath import SampleStore

#: Later passes of one repetition: a single one takes milliseconds.
_LATER: Final = 4


def figures(setting: Setting) -> Iterator[Figure]:
    """F17.strict_first and F17.strict: time of strict passes over that of default ones, shuffled, with two threads.

    A first pass opens a new store over all files; the digests of blocks are compared in it. A later one finds them compared.
    ``.processor`` counts the seconds of the processor, of both threads, which other programs disturb less.
    """
    data = setting.data
    shuffled = np.random.default_rng(4).permutation(data.keys)
    n_later = _LATER * len(shuffled)
    for suffix, clock in (("", time.perf_counter), (".processor", time.process_time)):
        with data.open(threads=2) as default, data.open(threads=2, strict=True) as strict:
            contenders: dict[str, Contender] = {
                "default, first": timed(len(shuffled), partial(_first, data, shuffled, strict=False), clock),
                "strict, first": timed(len(shuffled), partial(_first, data, shuffled, strict=True), clock),
                "default, later": timed(n_later, partial(_later, default, shuffled), clock),
                "strict, later": timed(n_later, partial(_later, strict, shuffled), clock),
            }
            rounds = interleave(contenders, setting.machine)
        # A ratio of times is the inverse ratio of rates.
        for figure, which, goal in (("F17.strict_first", "first", 2.0), ("F17.strict", "later", 1.1)):
            what = f"{'processor ' if suffix else ''}time of a {which} shuffled pass, strict / default"
            yield Figure(figure + suffix, what, rounds.ratio(f"default, {which}", f"strict, {which}"), "x", goal, at_most=True)


def _first(data: Data, keys: Keys, *, strict: bool) -> None:
    with data.open(threads=2, strict=strict) as store:
        _pass(store, keys)


def _later(store: SampleStore, keys: Keys) -> None:
    for _ in range(_LATER):
        _pass(store, keys)


def _pass(store: SampleStore, keys: Keys) -> None:
    out = COLUMNS.allocate(BATCH)
    for start in range(0, len(keys) - BATCH + 1, BATCH):
        store.columns_into(keys[start : start + BATCH], COLUMNS, out)
