"""Try a policy on plain arrays: no Dagster, no Postgres, no model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import collector_at_rest
from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.loop import drive_policy
from modyn_dagster.triggering.policy import ModelTrained, TriggeringPolicy
from modyn_dagster.triggering.simulated_scores import Scores, SimulatedScores
from modyn_dagster.triggering.stream.loaded_batch import Times
from modyn_dagster.triggering.stream.training_stream import Stream, StreamBatch

#: The part of a key that is a position in its batch.
_POSITION: Final = 0xFFFFFFFF


# Not frozen, like Decision: one is made for every sample at worst, and freezing triples what that takes.
@dataclass(slots=True)
class SimulatedDecision:
    """A decision at one of the policy's points.

    Attributes:
        fire: whether to train.
        index: the last sample to train on, counted from 0 over the whole stream.
        reason: for people.
        score: what was measured, where something was.
        threshold: what the score was compared with.
        details: more of the reason, as JSON values.
    """

    fire: bool
    index: int
    reason: str
    score: float | None
    threshold: float | None
    details: Mapping[str, Any] = field(default_factory=dict)


def simulate(
    policy: TriggeringPolicy,
    timestamps: npt.ArrayLike,
    labels: npt.ArrayLike | None = None,
    scores: Scores | None = None,
    batches: Sequence[int] | None = None,
    training_seconds: float | Callable[[int], float] = 0.0,
) -> list[SimulatedDecision]:
    """Every decision of a policy over a stream, at each of its points, fired or not.

    Amount and time policies have their points where they fire. Training takes no sample time and never fails: the policy
    hears of its model at once.

    Args:
        policy: begins anew, whatever it has seen before; its state moves on.
        timestamps: ``[n]``, ``datetime64`` or whole seconds, in arrival order.
        labels: ``[n]``; handed to callables among ``scores``.
        scores: what stands in for measurements. An array ``[k]`` whose entry j is the score at the policy's point j, counted
            from 0 whether or not it is used there (at the first point there is no model to measure); p-values for the rule
            ``p_value``, detections for a detector; NaN or None where undefined. Or a callable ``(start, stop, labels)`` that
            gets the current window as indices ``[start, stop)`` and its labels, or None. Or a dict of either by metric;
            for an ensemble a dict by member, nested like the ensemble. The accuracy to calibrate on is the metric
            ``expected_accuracy``. Of performance, a window's length is the number of samples judged.
        batches: lengths of the batches the stream arrives in; default: one batch.
        training_seconds: of every training, or by its number of samples, those since the trigger before. With 0 a cost policy
            without a model of the seconds finds training free and fires at every point.

    Raises:
        ConfigError: scores are missing, too few or of a wrong shape; the error says which ones and what to give.

    >>> from modyn_dagster.triggering import build_policy
    >>> [decision.index for decision in simulate(build_policy({"kind": "amount", "every": 2}), [0, 10, 20, 30])]
    [1, 3]
    """
    times = _as_times(timestamps)
    lengths = [len(times)] if batches is None else [int(n) for n in batches]
    if sum(lengths) != len(times) or min(lengths, default=0) < 0:
        raise ValueError(f"batches hold {sum(lengths)} samples, timestamps {len(times)}; give lengths that add up")
    starts = list(accumulate(lengths, initial=0))
    answers = SimulatedScores(scores, _as_labels(labels, len(times)), lambda key: _index(key, starts))
    policy.load_state_dict({})
    with collector_at_rest() if scores is None else nullcontext():
        return _decided(policy, _arriving(times, starts), starts, answers, training_seconds)


def _decided(
    policy: TriggeringPolicy,
    streams: Iterable[Stream],
    starts: Sequence[int],
    answers: SimulatedScores,
    training_seconds: float | Callable[[int], float],
) -> list[SimulatedDecision]:
    decisions: list[SimulatedDecision] = []
    cursor = last = ORIGIN
    # At worst there is a decision for every sample, so names are looked up once.
    keep, trains = decisions.append, policy.hears("model_trained") or callable(training_seconds)
    for stream in streams:
        for point, made, _, _ in drive_policy(policy, cursor, stream, lambda _, needs: answers.answer(needs)):
            key = made.key
            # Keys of the first batch are indices.
            index = key if key <= _POSITION else _index(key, starts)
            keep(SimulatedDecision(made.fire, index, made.reason, made.score, made.threshold, made.details))
            cursor = point
            if made.fire:
                if trains:
                    n_samples = stream.count(last, key)
                    seconds = training_seconds(n_samples) if callable(training_seconds) else training_seconds
                    policy.model_trained(ModelTrained(key, n_samples, seconds))
                last = key
    return decisions


def _index(key: int, starts: Sequence[int]) -> int:
    return -1 if key < 0 else starts[key >> 32] + (key & _POSITION)


def _arriving(times: Times, starts: Sequence[int]) -> Iterator[Stream]:
    """Yield the stream after each batch."""
    stream = Stream(())
    for ordinal, start in enumerate(starts[:-1]):
        stream = stream.extended(_batch(ordinal, times[start : starts[ordinal + 1]]))
        yield stream


def _batch(ordinal: int, times: Times) -> StreamBatch:
    time_max = times.max() if len(times) else np.datetime64(0, "us")
    return StreamBatch(ordinal, len(times), time_max, lambda: (np.arange(len(times)), times))


def _as_times(timestamps: npt.ArrayLike) -> Times:
    array = np.asarray(timestamps)
    if array.ndim != 1:
        raise ConfigError("simulate", "timestamps", f"shape {list(array.shape)}", "must have shape [n]")
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise ConfigError("simulate", "timestamps", "NaT", "every sample needs a time")
        return array.astype("datetime64[us]")
    if array.dtype.kind in "iu":
        return array.astype("datetime64[s]").astype("datetime64[us]")
    raise TypeError(f"timestamps must be datetime64 or whole seconds, not {array.dtype}")


def _as_labels(labels: npt.ArrayLike | None, n: int) -> npt.NDArray[Any] | None:
    array = None if labels is None else np.asarray(labels)
    if array is not None and len(array) != n:
        raise ConfigError("simulate", "labels", f"{len(array)} labels", f"must be one for each of the {n} samples")
    return array
