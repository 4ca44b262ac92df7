"""History of champions: the periods in which models of a run were its champion, with who and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from modyn_dagster.catalog.results.promotions import PromotionRow
from modyn_dagster.evaluation.promotion.state import DELETION, ROLLBACK


@dataclass(frozen=True, slots=True)
class LivePeriod:
    """Time in which one model was the champion.

    Attributes:
        began: event that made it the champion.
        until: event that ended it; None where it still is.
    """

    began: PromotionRow
    until: PromotionRow | None

    def holds_at(self, moment: datetime) -> bool:
        """Test a moment of the clock."""
        return self.began.created_at <= moment and (self.until is None or moment < self.until.created_at)


def live_periods(events: Sequence[PromotionRow]) -> list[LivePeriod]:
    """Periods of the champions of a run in order.

    A new champion and the retirement of the one before are one commit, the new one first, so periods do not overlap.
    """
    periods: list[LivePeriod] = []
    for event in events:
        if event.state == "champion":
            if periods and periods[-1].until is None:
                periods[-1] = LivePeriod(periods[-1].began, event)
            periods.append(LivePeriod(event, None))
        elif event.before == "champion" and periods and periods[-1].began.ordinal == event.ordinal:
            periods[-1] = LivePeriod(periods[-1].began, event)
    return periods


def is_rollback(event: PromotionRow) -> bool:
    """Test whether an event made an earlier champion the champion again: by rule, by a person, or after a deletion."""
    if event.state != "champion":
        return False
    again = event.actor == DELETION and event.before == "retired"
    return again or event.actor == ROLLBACK or event.action == "rollback"


def deciding_event(events: Sequence[PromotionRow], champion: PromotionRow) -> PromotionRow | None:
    """Return the event with the verdict of the test that made a model the champion; None where none did.

    That is the champion's own event, or, where a person approved, the one before it at which the model passed.
    """
    if champion.verdict is not None:
        return champion
    if champion.before != "passed":
        return None
    earlier = [event for event in events if event.number < champion.number and event.ordinal == champion.ordinal]
    return next((event for event in reversed(earlier) if event.state == "passed"), None)
