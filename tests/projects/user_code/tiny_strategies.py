"""Strategies and statements of a user's, good ones and bad ones."""

import random
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.selection.own import Chosen, WindowSamples

Strategy = Callable[[WindowSamples], Any]


def uniform() -> Strategy:
    """The samples with the smallest random numbers, with their chance."""

    def choose(samples: WindowSamples) -> Chosen:
        order = np.argsort(samples.random(), kind="stable")[: samples.size]
        return Chosen(samples.keys[order], chances=np.full(len(order), samples.size / len(samples)))

    return choose


def newest(*, weight: float = 2.0) -> Strategy:
    """The last samples of the window, of one weight, without chances."""
    return lambda samples: Chosen(samples.keys[-samples.size :], np.full(min(samples.size, len(samples)), weight))


def of_every_class() -> Strategy:
    """The samples of every class with the smallest random numbers, with their chance."""

    def choose(samples: WindowSamples) -> Chosen:
        classes, of, counts = np.unique(samples.labels, return_inverse=True, return_counts=True)
        quotas = np.minimum(counts, samples.size // len(classes))
        order = np.lexsort((samples.random(), of))
        rank = np.empty(len(samples), np.int64)
        rank[order] = np.arange(len(samples)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = rank < quotas[of]
        return Chosen(samples.keys[kept], chances=(quotas / counts)[of[kept]])

    return choose


def least_used() -> Strategy:
    """Samples in few training sets, the newest first, without chances."""

    def choose(samples: WindowSamples) -> Chosen:
        assert samples.uses is not None
        return Chosen(samples.keys[np.lexsort((-np.arange(len(samples)), samples.uses))[: samples.size]])

    return choose


def unused_of_place(place: str) -> Strategy:
    """Samples with an attribute that no earlier training set holds."""

    def choose(samples: WindowSamples) -> Chosen:
        assert samples.uses is not None
        return Chosen(samples.keys[(samples.attributes["label"] == place) & (samples.uses == 0)][: samples.size])

    return choose


def bad(fault: str) -> Strategy:
    """A strategy that breaks a law."""

    def choose(samples: WindowSamples) -> Any:
        keys, n = samples.keys[: samples.size], samples.size
        match fault:
            case "outside":
                return Chosen(np.append(keys[1:], samples.keys[-1] + np.uint64(1)))
            case "twice":
                return Chosen(np.append(keys[1:], keys[1]))
            case "too many":
                return Chosen(samples.keys[: n + 1])
            case "nan weight":
                return Chosen(keys, np.append(np.ones(n - 1), np.nan))
            case "vanishing weight":
                return Chosen(keys, np.append(np.ones(n - 1), 1e-60))
            case "zero chance":
                return Chosen(keys, chances=np.append(np.ones(n - 1), 0.0))
            case "large chance":
                return Chosen(keys, chances=np.append(np.ones(n - 1), 1.01))
            case "lengths":
                return Chosen(keys, np.ones(n + 1))
            case "mask":
                return Chosen(np.ones(len(samples), bool))
            case "negative":
                return Chosen(-np.arange(1, 2))
            case "list":
                return list(keys)
            case "raises":
                raise KeyError("nothing there")
            case "writes":
                samples.labels[0] = 3
            case "unlocks":
                samples.labels.flags.writeable = True
                samples.labels[:] = 3
            case "global":
                return Chosen(keys[np.random.random(n) < 0.5])
            case "python":
                return Chosen(keys[: random.randint(0, n)])  # noqa: S311 - a fault to be found
            case "key values":
                return Chosen(samples.keys[samples.keys % np.uint64(2) == 0][:n])
        return Chosen(keys)

    return choose


class Counting:
    """A strategy with a state: it chooses other samples at every call."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, samples: WindowSamples) -> Chosen:
        self.n_calls += 1
        return Chosen(samples.keys[self.n_calls % len(samples) :][: samples.size])


def no_strategy() -> str:
    return "nothing"


def balanced(samples: Any) -> sa.Select[Any]:
    """Twenty samples of each label, by hashes of Postgres, with their chance."""
    c = samples.c
    order = (sa.func.hashint8extended(c.key, 7), c.key)
    rank = sa.func.row_number().over(partition_by=c.label, order_by=order)
    n = sa.func.count().over(partition_by=c.label)
    ranked = sa.select(c.key, rank.label("rank"), n.label("n")).subquery()
    chance = sa.func.least(1.0, 20.0 / ranked.c.n)
    return sa.select(ranked.c.key, chance.label("chance")).where(ranked.c.rank <= 20)


def ones(samples: Any) -> sa.Select[Any]:
    """Samples of label 1, without chances."""
    return sa.select(samples.c.key).where(samples.c.label == 1)


def even_attributes(samples: Any) -> sa.Select[Any]:
    """Samples by an attribute and by their hour."""
    c = samples.c
    return sa.select(c.key).where(c.attributes["label"].as_string() == "0", sa.extract("hour", c.time) >= 4)


def shifted(samples: Any) -> sa.Select[Any]:
    return sa.select((samples.c.key + 1_000_000).label("key"))


def twice(samples: Any) -> Any:
    return sa.union_all(sa.select(samples.c.key), sa.select(samples.c.key))


def null_key(samples: Any) -> sa.Select[Any]:
    return sa.select(sa.func.nullif(samples.c.key, samples.c.key).label("key"))


def null_chance(samples: Any) -> sa.Select[Any]:
    return sa.select(samples.c.key, sa.func.nullif(samples.c.label * 0.5 + 0.5, 0.5).label("chance"))


def large_chance(samples: Any) -> sa.Select[Any]:
    return sa.select(samples.c.key, (samples.c.label + 1.0).label("chance"))


def divides_by_zero(samples: Any) -> sa.Select[Any]:
    return sa.select(samples.c.key, (1.0 / (samples.c.label - samples.c.label)).label("chance"))


def endless(samples: Any) -> sa.Select[Any]:
    """More rows than anybody waits for."""
    others = [samples.alias(f"other_{i}") for i in range(7)]
    joined = reduce(lambda left, right: left.join(right, sa.true()), others)
    n = sa.select(sa.func.sum(others[0].c.key)).select_from(joined).scalar_subquery()
    return sa.select(samples.c.key).where(samples.c.key < n)


def volatile_hash(samples: Any) -> sa.Select[Any]:
    """A function that depends on the server, not among the well-known ones."""
    return sa.select(samples.c.key).where(sa.func.pg_backend_pid() > samples.c.label)
