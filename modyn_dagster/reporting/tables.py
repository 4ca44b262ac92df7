"""Tables of summaries and comparisons, for the terminal (rich) and for Dagster's pages (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.reporting.comparison import Comparison
from modyn_dagster.reporting.estimates import hold
from modyn_dagster.reporting.scores import IntervalScore, LateScore
from modyn_dagster.reporting.seed_spread import Spread
from modyn_dagster.reporting.summary import RunSummary, TriggerCounts
from modyn_dagster.reporting.terminal import TerminalTable

#: Text of a missing value.
ABSENT: Final = "–"

#: Mark of intervals that begin before `pretrained.until`.
POSSIBLY_SEEN: Final = "† the pretrained model may have seen samples of the interval"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the caption explains the numbers.

    Attributes:
        header, rows: the first column is aligned left, the others right, unless they are ``texts``.
        caption: below the table.
        title: above the table, in the terminal.
        texts: all columns hold texts; the terminal aligns them left and leaves out those that are empty.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    title: str = ""
    texts: bool = False

    def markdown(self) -> str:
        """Format as GitHub-flavoured Markdown, with the caption below."""
        align = ("---", *("---:" for _ in self.header[1:]))
        lines = [_markdown_row(row) for row in (self.header, align, *self.rows)]
        return "\n".join([*lines, "", self.caption] if self.caption else lines)

    def rich(self) -> TerminalTable:
        """Format for a terminal, in whose width it is laid out when it is printed."""
        if not self.texts:
            return TerminalTable(self.header, self.rows, self.title, self.caption, frozenset(range(1, len(self.header))))
        shown = [i for i in range(len(self.header)) if not self.rows or any(row[i] for row in self.rows)]
        header, *rows = ([cells[i] for i in shown] for cells in (self.header, *self.rows))
        return TerminalTable(header, rows, self.title, self.caption, frozenset())


def comparison_table(comparison: Comparison) -> Table:
    """Table of runs: triggers, samples trained on, seconds, megabytes and mean score of the currently active model.

    Where labels arrive later, the last column is the score with the labels that have arrived until now.

    Seconds and megabytes that predictions of equal models of other runs spared are added in brackets. A pipeline that ran with
    several seeds has another row with mean and standard deviation.
    """
    rows: list[tuple[str, ...]] = []
    has_final = any(run.final is not None for run in comparison.runs)
    promotes = any(run.summary.promotions is not None for run in comparison.runs)
    has_own = any(run.summary.composite is not None for run in comparison.runs)
    for run in comparison.runs:
        counts = _triggers(run.summary.triggers)
        seconds = f"{run.summary.total_seconds:,.1f}" + _spared(run.summary.taken_over.seconds)
        megabytes = _megabytes(run.summary.n_bytes) + _spared(run.summary.taken_over.n_bytes / 1e6)
        costs = (f"{run.summary.samples_trained_on:,}", seconds, megabytes)
        final = (_score(run.final),) if has_final else ()
        gate = (_score(run.served), _promotions(run.summary)) if promotes else ()
        own = (_score(run.own),) if has_own else ()
        rows.append((run.label, run_text(run.summary), counts, *costs, _score(run.score), *final, *gate, *own))
    for spread in comparison.spreads:
        costs = (_spread(spread.samples_trained_on), _spread(spread.seconds, ",.1f"), _spread(spread.n_bytes, ",.1f", 1e-6))
        mean = f"mean of {len(spread.seeds)} seeds"
        rows.append((spread.pipeline, mean, _spread(spread.triggers, ",.1f"), *costs, _spread(spread.score, ".4f")))
    header = ["pipeline", "run", "triggers", "samples trained on", "seconds", "MB written"]
    header += [f"mean {comparison.metric or 'score'}, currently active", *(["with the labels so far"] if has_final else [])]
    header += ["served", "promoted"] if promotes else []
    header += [_own_column(comparison)] if has_own else []
    rows += [(name, "no run") for name in comparison.missing]
    return Table(tuple(header), tuple(row + (ABSENT,) * (len(header) - len(row)) for row in rows), _caption(comparison))


def scores_table(summary: RunSummary) -> Table:
    """Table of intervals: scores of the currently active and the currently trained model, samples, and notes."""
    rows = [_interval_row(active, trained) for active, trained in zip(summary.active, summary.trained, strict=True)]
    caption = (
        f"{summary.metric}; mean of the currently active model {_score(summary.mean_active)} "
        f"over {summary.n_scored} of {len(summary.active)} intervals"
    )
    if any(score.low is not None for score in (*summary.active, *summary.trained)):
        caption += "; in brackets the confidence interval"
    if summary.served:
        caption += f"; of the champion of the time, which served, {_score(summary.mean_served)}"
    if summary.composite is not None:
        caption += f"; of {summary.composite}, a composite model of yours, {_score(summary.mean_own)}"
    if summary.estimated:
        held = hold(summary.estimated, summary.active)
        caption += f"; estimates of the active model lie {_score(held.distance)} from its scores on average, "
        caption += f"and {held.inside} of {held.n} scores in their intervals"
    if any(score.seen_in_training for score in summary.trained):
        caption += "; * the model saw samples of the interval in training"
    if any(score.possibly_seen for score in (*summary.active, *summary.trained)):
        caption += f"; {POSSIBLY_SEEN}"
    header = ("interval", "currently active", "trigger", "currently trained", "trigger", "samples", "note")
    return Table(header, tuple(rows), caption)


def interval_text(start: datetime, end: datetime) -> str:
    """Both ends of an interval in UTC, with the time of day unless it is midnight. The end is exclusive.

    >>> from datetime import UTC
    >>> interval_text(datetime(1900, 1, 1, tzinfo=UTC), datetime(1900, 1, 2, 12, tzinfo=UTC))
    '1900-01-01 – 1900-01-02 12:00:00'
    """
    return f"{_moment(start)} – {_moment(end)}"


def _interval_row(active: IntervalScore, trained: IntervalScore) -> tuple[str, ...]:
    n_samples = ABSENT if active.n_samples is None else f"{active.n_samples:,}"
    notes = dict.fromkeys(score.reason for score in (active, trained) if score.reason is not None)
    return (
        interval_text(active.start, active.end),
        _marked_score(active),
        ABSENT if active.trigger is None else str(active.trigger),
        _marked_score(trained),
        ABSENT if trained.trigger is None else str(trained.trigger),
        n_samples,
        "; ".join(notes),
    )


def _caption(comparison: Comparison) -> str:
    if not comparison.runs:
        return "no pipeline has run"
    delays = _delays(comparison) + _gates(comparison)
    if not comparison.shared:
        return f"no mean: there is no interval where every pipeline has an active model and a defined score{delays}"
    own = ", ".join(f"{run.label} {_score(run.summary.mean_active)} ({run.summary.n_scored})" for run in comparison.runs)
    if any(run.summary.taken_over.n_samples for run in comparison.runs):
        own += "; in brackets predictions taken over from equal models of other runs, as they were made there"
    final = f"; with the labels so far: over the {comparison.n_final} where every pipeline has such a score"
    return (
        f"mean over the {len(comparison.shared)} of {comparison.n_intervals} intervals where every pipeline has an active "
        f"model and a defined score; over its own intervals: {own}{final if comparison.n_final else ''}{delays}"
    )


def _delays(comparison: Comparison) -> str:
    """Simulated delays of labels in words; pipelines without one see labels as they come."""
    delays = [f"{run.label} ({run.summary.label_delay})" for run in comparison.runs if run.summary.label_delay is not None]
    return (f"; labels come later by simulation: {', '.join(delays)}" if delays else "") + _pretrained(comparison)


def _pretrained(comparison: Comparison) -> str:
    """Pretrained models that may have seen intervals, with the time until which they may."""
    marked = [(run.label, run.summary.pretrained_until) for run in comparison.runs]
    known = [f"{label} (until {_moment(until)})" for label, until in marked if until is not None]
    return f"; pretrained models may have seen early intervals: {', '.join(known)}" if known else ""


def run_text(summary: RunSummary) -> str:
    """Mode, id and name of a run.

    >>> from types import SimpleNamespace
    >>> run_text(SimpleNamespace(mode="replay", run_id=3, name="no drift"))
    "replay 3 'no drift'"
    """
    return f"{summary.mode} {summary.run_id}" + (f" {summary.name!r}" if summary.name else "")


def _spared(amount: float) -> str:
    return f" (+{amount:,.1f})" if amount else ""


def _promotions(summary: RunSummary) -> str:
    """Promotions of a gate, of how many tests."""
    counts = summary.promotions
    if counts is None:
        return ABSENT
    return f"{counts.promoted} of {counts.tests}" + (f", {counts.rolled_back} back" if counts.rolled_back else "")


def _gates(comparison: Comparison) -> str:
    """Words about the columns of gates; empty where no pipeline has one."""
    seconds = [run.summary.seconds.get("promote", 0.0) for run in comparison.runs if run.summary.promotions is not None]
    if not seconds:
        return ""
    return f"; served: the champion of the time; promoted: models, of the tests of the gates, which took {sum(seconds):,.1f} s"


def _own_column(comparison: Comparison) -> str:
    """Header of the column of the users' composite models: their name, or one for several."""
    names = {run.summary.composite for run in comparison.runs} - {None}
    return str(names.pop()) if len(names) == 1 else "own composite"


def _triggers(counts: TriggerCounts) -> str:
    others = [f"{getattr(counts, name)} {name}" for name in ("skipped", "failed", "unfinished") if getattr(counts, name)]
    return f"{counts.trained}" + (f" ({', '.join(others)})" if others else "")


def _megabytes(n_bytes: int | None) -> str:
    return ABSENT if n_bytes is None else f"{n_bytes / 1e6:,.1f}"


def _spread(spread: Spread | None, form: str = ",.0f", unit: float = 1.0) -> str:
    return ABSENT if spread is None else f"{spread.mean * unit:{form}} ± {spread.deviation * unit:{form}}"


def _score(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _marked_score(score: IntervalScore) -> str:
    mark = "*" if score.seen_in_training and score.value is not None else ""
    mark += "†" if score.possibly_seen and score.value is not None else ""
    return with_confidence(score.value, score.low, score.high) + mark + _late_text(score.late)


def with_confidence(value: float | None, low: float | None, high: float | None) -> str:
    """A score, with its confidence interval if there is one.

    >>> with_confidence(0.8, 0.49, 0.943), with_confidence(0.8, None, None)
    ('0.8000 (0.490 to 0.943)', '0.8000')
    """
    return _score(value) + ("" if low is None or high is None else f" ({low:.3f} to {high:.3f})")


def cell_text(cell: EvaluationRow | None) -> str:
    """Value of a cell with its confidence interval, or the reason why it has none; a dash without a cell."""
    if cell is None:
        return ABSENT
    text = str(cell.undefined) if cell.value is None else with_confidence(cell.value, cell.low, cell.high)
    return text + _late_text(LateScore.of(cell))


def _late_text(late: LateScore | None) -> str:
    return "" if late is None else f" [{late}]"


def _moment(moment: datetime) -> str:
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return str(naive.date()) if naive == datetime(naive.year, naive.month, naive.day) else naive.isoformat(" ")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
