"""Event of a live run, as hooks get it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["trigger", "training_failed", "score_below", "score_above"]


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a live run that concerns people.

    Attributes:
        name: the same whenever the event is told again; unique in its run.
        kind: ``trigger`` (a training begins), ``training_failed`` (a trigger used up its attempts), ``score_below`` or
            ``score_above`` (the active model's score on a closed interval passed the limit).
        pipeline, dataset: their names.
        run: id of the live run.
        trigger: partition key of the trigger it is about, of a score that of the active model.
        at: when it happened, by the wall clock, UTC.
        text: a sentence for people.
        reason: why the trigger was made.
        score: what was measured: of a trigger by its policy, of a bad score on the interval.
        threshold: what the score was compared with.
        manual: whether a person made the trigger.
        attempt: of the training.
        error: why the last attempt of a failed training ended.
        metric: of a bad score.
        interval: of a bad score, ``[start, end)`` in sample time, UTC.
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
