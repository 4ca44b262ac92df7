"""History of champions: the periods in which models of a run were its champion, with who and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from modyn_dagster.catalog.results.promotions import PromotionRow


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

    A new champion and the retirement of the one before are one commit, so periods do not overlap.
    """
    periods: list[LivePeriod] = []
    for event in events:
        if event.state == "champion":
            if periods and periods[-1].until is None:
                periods[-1] = LivePeriod(periods[-1].began, event)
            periods.append(LivePeriod(event, None))
        elif event.before == "champion" and periods and periods[-1].until is None:
            periods[-1] = LivePeriod(periods[-1].began, event)
    return periods
