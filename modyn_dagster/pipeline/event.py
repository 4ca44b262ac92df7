"""Event of a live run, as hooks get it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["trigger", "training_failed", "score_below", "score_above", "promoted", "rejected", "rolled_back"]


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a live run that concerns people.

    Attributes:
        name: unique in its run, and equal when the event is delivered again.
        kind: ``trigger`` (a training begins), ``training_failed`` (a trigger used up its attempts), ``score_below`` or
            ``score_above`` (the active model's score on a closed interval passed the limit), ``promoted`` (a model became the
            champion), ``rejected`` (a candidate will not be it) or ``rolled_back`` (an earlier champion is it again).
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
