"""Tables of promotions: what was live when, and candidates with the progress of their tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from modyn_dagster.catalog.results.promotions import PromotionRow
from modyn_dagster.reporting.model_tables import SHORT
from modyn_dagster.reporting.promotion.live_history import CandidateState, ChampionPeriod, LiveHistory
from modyn_dagster.reporting.tables import ABSENT, Table

#: Models that are decided about, beside the open candidates, of which there are a few.
_MOST_DECIDED: Final = 10

LIVE_HEADER: Final = ("model", "trigger", "from", "to", "from (stream time)", "to (stream time)", "who", "why", "score then")


def live_table(history: LiveHistory, *, most: int | None = None) -> Table:
    """Table of the champions: model, trigger, from and to by the clock and in stream time, who, why, and the score then.

    ``most`` is the number of newest ones that are shown; default: all.
    """
    shown = history.periods if most is None else history.periods[-most:]
    rows = tuple(live_row(each) for each in shown)
    caption = (
        f"score then: mean {history.metric} as known, over the intervals that began while the model was the champion"
        if rows
        else "no model was the champion yet: the first one becomes it when its gate has looked at it"
    )
    if left_out := len(history.periods) - len(shown):
        caption += f"; earlier: {left_out} left out"
    return Table(LIVE_HEADER, rows, caption, f"What was live when: {history.title}", texts=True)


def live_row(champion: ChampionPeriod) -> tuple[str, ...]:
    """Cells of one champion, as texts."""
    began, until = champion.period.began, champion.period.until
    return (
        began.model_hash[:SHORT],
        began.partition_key,
        moment_text(began.created_at),
        "now" if until is None else moment_text(until.created_at),
        moment_text(began.time),
        "now" if until is None else moment_text(until.time),
        began.actor,
        began.reason,
        ABSENT if champion.score is None else f"{champion.score:.4f} ({champion.n_intervals})",
    )


def candidates_table(history: LiveHistory) -> Table | None:
    """Table of the models that never were champion: all that are open, and the newest of the others; None without any."""
    decided = [each for each in history.candidates if not each.is_open]
    shown = [*decided[-_MOST_DECIDED:], *(each for each in history.candidates if each.is_open)]
    if not shown:
        return None
    rows = tuple(_candidate_row(each) for each in sorted(shown, key=lambda each: each.event.ordinal))
    left_out = len(decided) - _MOST_DECIDED
    caption = "pairs: samples that candidate and champion have both predicted, since the test began"
    if left_out > 0:
        caption += f"; {left_out} older models that were decided about are left out (--json has all)"
    header = ("model", "trigger", "state", "since", "since (stream time)", "test", "pairs", "against", "why")
    return Table(header, rows, caption, "Candidates", texts=True)


def champion_line(champion: str | None, states: Sequence[str]) -> str:
    """Champion and candidates in one line, for a status.

    >>> champion_line("000003-000004", ["shadow", "passed"])
    '000003-000004; 2 candidates (1 shadow, 1 passed)'
    """
    line = champion or "none yet"
    if not states:
        return line
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{line}; {len(states)} candidate{'s' * (len(states) != 1)} ({counts})"


def moment_text(moment: datetime | None) -> str:
    """A moment in UTC to the second; a dash without one."""
    return ABSENT if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def change_text(event: PromotionRow) -> str:
    """Change of one model's state in one line."""
    before = f", {event.before} before" if event.before else ""
    return f"model {event.model_hash[:SHORT]} of trigger {event.partition_key} is {event.state} now{before}: {event.reason}"


def _candidate_row(candidate: CandidateState) -> tuple[str, ...]:
    event, trial = candidate.event, candidate.trial
    return (
        event.model_hash[:SHORT],
        event.partition_key,
        event.state,
        moment_text(event.created_at),
        moment_text(event.time),
        ABSENT if trial is None else str(trial.number),
        ABSENT if trial is None else f"{trial.n:,}",
        ABSENT if trial is None else f"trigger {trial.champion}",
        event.reason,
    )
