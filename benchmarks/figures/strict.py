"""F17: the cost of strict reads, in the first pass of a store and in later ones."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from benchmarks.data import COLUMNS, Keys
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
    """
    data = setting.data
    shuffled = np.random.default_rng(4).permutation(data.keys)
    with data.open(threads=2) as default, data.open(threads=2, strict=True) as strict:
        contenders: dict[str, Contender] = {
            "default, first": _first(setting, shuffled, strict=False),
            "strict, first": _first(setting, shuffled, strict=True),
            "default, later": timed(_LATER * len(shuffled), lambda: [_pass(default, shuffled) for _ in range(_LATER)]),
            "strict, later": timed(_LATER * len(shuffled), lambda: [_pass(strict, shuffled) for _ in range(_LATER)]),
        }
        rounds = interleave(contenders, setting.machine)
    # A ratio of times is the inverse ratio of rates.
    for figure, which, goal in (("F17.strict_first", "first", 2.0), ("F17.strict", "later", 1.1)):
        what = f"time of a {which} shuffled pass, strict / default"
        yield Figure(figure, what, rounds.ratio(f"default, {which}", f"strict, {which}"), "x", goal, at_most=True)


def _first(setting: Setting, keys: Keys, *, strict: bool) -> Contender:
    def work() -> None:
        with setting.data.open(threads=2, strict=strict) as store:
            _pass(store, keys)

    return timed(len(keys), work)


def _pass(store: SampleStore, keys: Keys) -> None:
    out = COLUMNS.allocate(BATCH)
    for start in range(0, len(keys) - BATCH + 1, BATCH):
        store.columns_into(keys[start : start + BATCH], COLUMNS, out)
