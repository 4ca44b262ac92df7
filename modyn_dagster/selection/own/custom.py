"""Selection by a function of the user's over the arrays of a window."""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ImportPathError, ModynError, SelectionError
from modyn_dagster.imports import call_factory
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.own.choice import Origin, OwnSelection, checked, partition_of
from modyn_dagster.selection.own.protocol import Chosen, SelectionStrategy, WindowSamples
from modyn_dagster.selection.presampling.groups import History, columns_of
from modyn_dagster.selection.presampling.selection import target_size
from modyn_dagster.spec.selection import SelectionSpec
from modyn_dagster.spec.strategies.own import CustomStrategySpec


def custom_strategy(
    factory: str, config: Mapping[str, Any], *, source: str = "selection", field: str = "strategy"
) -> SelectionStrategy:
    """Strategy that ``factory(**config)`` returns.

    Args:
        factory: import path ``package.module:function``, or that of a class.
        config: keyword arguments of the block.
        source: file or pipeline of the block, for errors.
        field: of the block there.

    Raises:
        ImportPathError: the path cannot be imported, or its result is no function of one argument.
        ConfigError: the factory refused its config.
    """
    strategy: SelectionStrategy = call_factory(factory, config, source=source, field=field)
    if not takes_one_argument(strategy):
        rule = f"must return a function of one argument, the samples of a window, not {_named(strategy)}"
        raise ImportPathError(source, f"{field}.factory", factory, rule)
    return strategy


def takes_one_argument(function: object) -> bool:
    """Test that an object can be called with one positional argument; compiled code that does not tell passes."""
    if not callable(function):
        return False
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def custom_selection(
    spec: SelectionSpec,
    strategy: CustomStrategySpec,
    pool: Iterable[KeyArray],
    *,
    seed: int,
    trigger: int,
    history: History,
    origin: Origin,
) -> OwnSelection:
    """Select by the user's strategy from the window of a trigger, which is held in memory as a whole.

    Args:
        spec: of the selection.
        strategy: the block in use at the trigger.
        pool: keys of the window in key order, in chunks, with ``Columns``.
        seed: of the run.
        trigger: its ordinal.
        history: of the run.
        origin: of the factory, for errors.

    Raises:
        ChoiceRefused: the choice breaks a law.
        SelectionError: the strategy raised an error.
    """
    field = origin.field.removesuffix(".factory")
    function = custom_strategy(strategy.factory, strategy.config, source=origin.source, field=field)
    samples = _window(spec, strategy, pool, seed_for(seed, "custom", trigger), trigger, history)
    n_pool = len(samples)
    # An empty window leaves nothing to choose.
    chosen = choose(function, samples, origin) if n_pool else Chosen(np.empty(0, np.uint64), chances=np.empty(0))
    certified = chosen.chances is not None
    return OwnSelection(partition_of(chosen, n_pool), n_pool=n_pool, partition_size=spec.partition_size, certified=certified)


def choose(strategy: Callable[[WindowSamples], object], samples: WindowSamples, origin: Origin) -> Chosen:
    """Call a strategy, and return its choice, checked. Raises ``ChoiceRefused`` or ``SelectionError``."""
    try:
        chosen = strategy(samples)
    except ModynError:
        raise
    except Exception as error:
        what = f"{origin.source}: {origin.field}: {origin.path} failed: {type(error).__name__}: {error}"
        raise SelectionError(what) from error
    return checked(chosen, lambda: [samples.keys], samples.size, origin)


def _window(
    spec: SelectionSpec, strategy: CustomStrategySpec, pool: Iterable[KeyArray], seed: int, trigger: int, history: History
) -> WindowSamples:
    columns = columns_of(pool)
    parts = [(keys, labels) for keys, labels in columns.labels()]
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in parts)])
    labels = np.concatenate([np.empty(0, np.int64), *(labels for _, labels in parts)])
    uses = None
    if strategy.usage:
        if history.used is None:
            raise SelectionError("the strategy needs the earlier training sets, and none were given")
        uses = history.used.counts(keys)
    attributes = {name: _texts(columns.attribute(name), len(keys)) for name in strategy.attributes}
    size = target_size(strategy, spec.limit, len(keys))
    return WindowSamples(keys, labels, history.stretch_of(keys), size, trigger, seed, uses, attributes)


def _texts(chunks: Iterable[tuple[KeyArray, Iterable[str | None]]], n: int) -> npt.NDArray[np.object_]:
    texts = np.empty(n, object)
    texts[:] = [text for _, chunk in chunks for text in chunk]
    return texts


def _named(found: object) -> str:
    return f"the function {getattr(found, '__name__', '')}" if callable(found) else type(found).__name__
