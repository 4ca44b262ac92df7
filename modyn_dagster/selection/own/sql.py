"""Selection by a statement of the user's: of more keys than the size those with the smallest salted hashes are kept."""

from collections.abc import Iterable

import numpy as np

from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.windows.statements.choosing import chosen_rows
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.selection.own.choice import Origin, OwnSelection, checked, partition_of
from modyn_dagster.selection.own.protocol import Chosen
from modyn_dagster.selection.presampling.pool import count
from modyn_dagster.selection.presampling.selection import target_size
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.selection import SelectionSpec
from modyn_dagster.spec.strategies.own import SQLStrategySpec


def sql_selection(
    spec: SelectionSpec,
    strategy: SQLStrategySpec,
    view: DatasetView,
    pool: Iterable[KeyArray],
    *,
    seed: int,
    trigger: int,
    origin: Origin,
) -> OwnSelection:
    """Select by the user's statement from the window of a trigger.

    Args:
        spec: of the selection.
        strategy: the block in use at the trigger.
        view: of the dataset at the trigger.
        pool: keys of the window in key order, in chunks; read several times.
        seed: of the run.
        trigger: its ordinal.
        origin: of the statement, for errors.

    Raises:
        ConfigError: the statement uses what is not allowed.
        ChoiceRefused: the result breaks a law.
        SelectionError: Postgres cannot compute the statement, or it took too long.
    """
    n_pool = count(pool)
    rows = chosen_rows(view, pool, origin, seconds_of(strategy.timeout))
    # Held against the window before a part of it is taken: a statement is wrong whatever size is asked for.
    chosen = checked(Chosen(rows.keys, chances=rows.chances), lambda: pool, n_pool, origin)
    part = smallest_hashes(chosen, target_size(strategy, spec.limit, n_pool), seed_for(seed, "limit", trigger))
    if strategy.weights == "equal" and part.chances is not None:
        part = Chosen(part.keys, np.full(len(part.keys), n_pool / max(1, len(part.keys))), part.chances)
    certified = part.chances is not None
    return OwnSelection(partition_of(part, n_pool), n_pool=n_pool, partition_size=spec.partition_size, certified=certified)


def smallest_hashes(chosen: Chosen, size: int, salt: int) -> Chosen:
    """Keep the keys with the smallest salted hashes, ties by key; every chance falls by the share that is kept.

    >>> part = smallest_hashes(Chosen(np.arange(4, dtype=np.uint64), chances=np.ones(4)), 2, 7)
    >>> len(part.keys), part.chances.tolist()
    (2, [0.5, 0.5])
    """
    if len(chosen.keys) <= size:
        return chosen
    kept = np.sort(np.argsort(hash_keys(chosen.keys, salt), kind="stable")[:size])
    chances = None if chosen.chances is None else chosen.chances[kept] * (size / len(chosen.keys))
    return Chosen(chosen.keys[kept], None, chances)
