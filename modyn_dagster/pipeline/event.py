"""Event of a live run, as hooks get it, and as webhooks and commands do."""

import json
import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

Kind = Literal[
    "trigger",
    "training_failed",
    "score_below",
    "score_above",
    "waits_for_approval",
    "promoted",
    "rejected",
    "rolled_back",
    "test",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a live run that concerns people.

    Attributes:
        name: unique in its run, and equal when the event is delivered again.
        kind: ``trigger`` (a training begins), ``training_failed`` (a trigger used up its attempts), ``score_below`` or
            ``score_above`` (the active model's score on a closed interval passed the limit), ``waits_for_approval`` (a candidate
            passed its test, and a person decides), ``promoted`` (a model became the champion), ``rejected`` (a candidate will not
            be it), ``rolled_back`` (an earlier champion is it again), or ``test`` (nothing happened: a person tries the channels,
            with run 0 and no trigger).
        pipeline, dataset: their names.
        run: id of the live run.
        trigger: partition key of the trigger; for a score, of the active model's trigger; for a promotion, of
            the model's trigger.
        at: wall-clock time of the event, UTC.
        text: a sentence for people.
        reason: reason of the trigger, or of the promotion.
        score: score that the policy measured, or the bad score on the interval.
        threshold: limit that the score was compared with.
        manual: whether a person made the trigger, or decided about the promotion.
        attempt: attempt of the training.
        error: error of the last attempt of a failed training.
        metric: metric of a bad score.
        interval: interval of a bad score, ``[start, end)`` in sample time, UTC.
    """

    name: str
    kind: Kind
    pipeline: str
    dataset: str
    run: int
    trigger: str
    at: datetime
    text: str
    reason: str
    score: float | None = None
    threshold: float | None = None
    manual: bool = False
    attempt: int = 1
    error: str | None = None
    metric: str | None = None
    interval: tuple[datetime, datetime] | None = None


def event_json(event: Event) -> str:
    """Text of an event as a JSON object with all its fields, in ASCII.

    Times are ISO 8601 in UTC, an interval is a list of its two ends, numbers that JSON lacks (NaN, infinities) are null.
    """
    return json.dumps({field.name: _json_value(getattr(event, field.name)) for field in fields(event)}, allow_nan=False)


def _json_value(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case float():
            return float(value) if math.isfinite(value) else None
        case tuple():
            return [_json_value(each) for each in value]
        case _:
            return value
