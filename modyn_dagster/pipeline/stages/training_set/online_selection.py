"""Online strategies in pipelines: their state up to a trigger, from the state up to an earlier one and the batches since.

The state is a function of the stream and of the run's earlier triggers: from any earlier state, or from none, the same
follows. So it may be computed again at any time, after a kill or where a file is gone, by a replay as in production.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import CorruptFile
from modyn_dagster.keys import ORIGIN, KeyArray, KeyRange, key_of, ordinal_of, ordinals_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.training_set.replay_memory import update_replay_memory
from modyn_dagster.pipeline.training_stream import batch_parts, batch_times
from modyn_dagster.randomness import seed_for
from modyn_dagster.selection.memory import Memory
from modyn_dagster.selection.online import GONE, OnlineSelection, OnlineState, build_sampler, inclusion_probabilities, unit_of
from modyn_dagster.selection.time_biased import RTBS, Sampler
from modyn_dagster.spec.online import OnlineSpec, RTBSSpec, SlidingWindowSpec, WeighedOnlineSpec
from modyn_dagster.storage import verify_checksum

#: Points of the fill that are recorded with a trigger.
_MOST_FILLS: Final = 200
#: Chances below are told as this.
_SMALLEST: Final = 1e-30


def online_state(context: TriggerContext, spec: OnlineSpec) -> OnlineState:
    """The state of a strategy when everything up to the trigger's key was taken in, deleted samples left out."""
    with context.platform.transaction() as conn:
        earlier = [row for row in list_triggers(conn, context.run.id) if row.ordinal < context.trigger.ordinal]
    state, following = _newest_state(context, spec, earlier)
    state.forget(context.view.deleted.among)
    for trigger in following:
        _take(context, state, trigger)
        state = _after(context, state, trigger)
    state.fills.clear()
    _take(context, state, context.trigger)
    return state


def online_selection(context: TriggerContext, state: OnlineState) -> tuple[OnlineSelection, KeyRange, dict[str, Any]]:
    """What the trigger trains on, the window it stands for, and what is worth recording beside it."""
    spec, view = state.spec, context.view
    keys, begin, details = state.keys(), state.begin, dict[str, Any]()
    n_pool = state.n_seen - _n_deleted(view, KeyRange(begin, state.until))
    if isinstance(spec, SlidingWindowSpec):
        begin, n_pool = int(keys[0]) - 1 if len(keys) else state.until, len(keys)
    if isinstance(spec, RTBSSpec) and isinstance(state.sampler, RTBS):
        fill = state.sampler.fill
        details |= {"fill": fill, "fills": _thinned(state.fills)}
        if fill < spec.min_fill:
            details["skipped"] = f"too little fresh data: fill {fill:.4g} is below min_fill {spec.min_fill:g}"
            keys = keys[:0]
    chances = None
    if isinstance(spec, WeighedOnlineSpec) and isinstance(state.sampler, Sampler):
        chances = inclusion_probabilities(state.sampler, _ages(view, state, keys))
        share = min(1.0, (context.spec.selection.limit or len(keys)) / max(1, len(keys)))
        details["variance"] = _variance(view, state, state.sampler, KeyRange(begin, state.until), share)
    selection = OnlineSelection(
        context.spec.selection,
        keys,
        chances,
        n_pool=n_pool,
        unbiased=isinstance(spec, WeighedOnlineSpec) and spec.weights == "unbiased",
        seed=context.run.seed,
        trigger=context.trigger.ordinal,
    )
    return selection, KeyRange(begin, context.trigger.key), details


def _newest_state(
    context: TriggerContext, spec: OnlineSpec, earlier: Sequence[TriggerRow]
) -> tuple[OnlineState, Sequence[TriggerRow]]:
    """The newest recorded state that can be read, or one from the beginning; and the triggers after it."""
    for number in range(len(earlier) - 1, -1, -1):
        state = _read(context, spec, earlier[number])
        if state is not None:
            return _after(context, state, earlier[number]), earlier[number + 1 :]
    begin = ORIGIN if context.spec.selection.window == "all" else context.run.origin
    return _fresh(context, spec, begin, -1), earlier


def _read(context: TriggerContext, spec: OnlineSpec, trigger: TriggerRow) -> OnlineState | None:
    with context.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    recorded = row.details.get("state") if row is not None else None
    if recorded is None or recorded["strategy"] != spec.model_dump(mode="json"):
        return None
    path = context.platform.home / recorded["path"]
    try:
        verify_checksum(path, recorded["checksum"])
    except CorruptFile:
        # Retention removed it, or an attempt was killed while it replaced it.
        return None
    state = _fresh(context, spec, ORIGIN, -1)
    state.load_json(path.read_bytes())
    return state


def _after(context: TriggerContext, state: OnlineState, trigger: TriggerRow) -> OnlineState:
    if trigger.state != "trained":
        return state
    if state.spec.reset == "after_trigger":
        return _fresh(context, state.spec, trigger.key, trigger.ordinal)
    state.learnt()
    return state


def _fresh(context: TriggerContext, spec: OnlineSpec, begin: int, after: int) -> OnlineState:
    """``after`` is the ordinal of the trigger that reset it, -1 at the beginning: each life has its own choices."""
    return OnlineState(spec, build_sampler(spec, seed_for(context.run.seed, "online", after)), begin, begin)


def _take(context: TriggerContext, state: OnlineState, trigger: TriggerRow) -> None:
    """Take in what came up to a trigger."""
    if isinstance(state.sampler, Memory):
        update_replay_memory(context, state, state.sampler, trigger)
    else:
        for part in batch_parts(context.view, KeyRange(state.until, trigger.key)):
            state.take(np.where(part.deleted, GONE, part.keys), part.time, part.until)
    state.until = trigger.key


def _ages(view: DatasetView, state: OnlineState, keys: KeyArray) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """How old the samples are at the state's time, in units of the sampler's ``elapsed``."""
    times = batch_times(view)
    ordinals = np.array(list(times), np.int64)
    at = np.array(list(times.values()), np.int64)[np.searchsorted(ordinals, ordinals_of(keys))]
    return ((state.time or 0) - at) / 1e6 / unit_of(state.spec)


def _variance(view: DatasetView, state: OnlineState, sampler: Sampler, window: KeyRange, share: float) -> float:
    """Of the sum of the inverted chances over the sample, were each sample of the stream drawn independently; ``share`` is
    that of the sample which the limit leaves.
    """
    inside = [batch for batch in view.batches if ordinal_of(window.after + 1) <= batch.ordinal <= ordinal_of(window.until)]
    firsts = np.array([key_of(batch.ordinal, 0) for batch in inside], np.uint64)
    sizes = np.array([batch.n_train or 0 for batch in inside], np.float64)
    chances = np.maximum(share * inclusion_probabilities(sampler, _ages(view, state, firsts)), _SMALLEST)
    return float(np.sum(sizes * (1 / chances - 1)))


def _n_deleted(view: DatasetView, window: KeyRange) -> int:
    return sum(int(np.count_nonzero(part.deleted)) for part in batch_parts(view, window)) if _any_deleted(view) else 0


def _any_deleted(view: DatasetView) -> bool:
    return any(batch.n_deleted for batch in view.batches)


def _thinned(fills: Sequence[tuple[int, float]]) -> list[list[float]]:
    """At most so many points at equal distances, the first and the last among them."""
    n, kept = len(fills), min(len(fills), _MOST_FILLS)
    return [list(fills[i * (n - 1) // max(1, kept - 1)]) for i in range(kept)]
