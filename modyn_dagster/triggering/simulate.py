"""Try a policy on plain arrays: no Dagster, no Postgres, no model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import ORIGIN, ordinal_of, position_of
from modyn_dagster.triggering.policy import Decision, ModelTrained, TriggeringPolicy
from modyn_dagster.triggering.stream import Stream, StreamBatch


@dataclass(frozen=True, slots=True)
class SimulatedDecision:
    """A decision with ``index``, the last sample trained on, counted from 0 over the whole stream."""

    fire: bool
    index: int
    reason: str
    score: float | None
    threshold: float | None


def simulate(
    policy: TriggeringPolicy, timestamps: npt.ArrayLike, *, batches: Sequence[int] | None = None
) -> list[SimulatedDecision]:
    """Every decision of a policy that fires over a stream.

    Args:
        policy: fresh; its state moves on.
        timestamps: ``datetime64`` or whole seconds, one per sample, in arrival order.
        batches: lengths of the batches the stream arrives in; default: one batch.
    """
    times = _as_times(timestamps)
    lengths = [len(times)] if batches is None else list(batches)
    if sum(lengths) != len(times):
        raise ValueError(f"batches hold {sum(lengths)} samples, timestamps {len(times)}")
    starts = np.cumsum([0, *lengths])
    decisions: list[SimulatedDecision] = []
    cursor = ORIGIN
    arrived: list[StreamBatch] = []
    for ordinal, length in enumerate(lengths):
        arrived.append(_batch(ordinal, times[starts[ordinal] : starts[ordinal] + length]))
        stream = Stream(arrived)
        while (point := policy.next_point(cursor, stream)) is not None:
            decision = policy.decide(point)
            cursor = point
            if decision.fire:
                policy.triggered(decision.key)
                decisions.append(_simulated(decision, starts))
                policy.model_trained(ModelTrained(decision.key, stream.count(ORIGIN, decision.key), 0.0))
    return decisions


def _simulated(decision: Decision, starts: npt.NDArray[np.int64]) -> SimulatedDecision:
    index = int(starts[ordinal_of(decision.key)]) + position_of(decision.key)
    return SimulatedDecision(decision.fire, index, decision.reason, decision.score, decision.threshold)


def _batch(ordinal: int, times: npt.NDArray[np.datetime64]) -> StreamBatch:
    time_max = times.max() if len(times) else np.datetime64(0, "us")
    return StreamBatch(ordinal, len(times), time_max, lambda: (np.arange(len(times)), times))


def _as_times(timestamps: npt.ArrayLike) -> npt.NDArray[np.datetime64]:
    array = np.asarray(timestamps)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    if array.dtype.kind in "iu":
        return array.astype("datetime64[s]").astype("datetime64[us]")
    raise TypeError(f"timestamps must be datetime64 or whole seconds, not {array.dtype}")
