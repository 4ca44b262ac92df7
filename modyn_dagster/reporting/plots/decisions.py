"""Pictures of decisions over sample time as small SVG charts: scores against thresholds, and the fill of a time-biased sample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.results.training_sets import FillPoint
from modyn_dagster.reporting.plots.figures import COLOURS
from modyn_dagster.reporting.plots.scale import HEIGHT, Axes
from modyn_dagster.reporting.plots.svg import Line, Mark, Verticals, line_chart, panel_chart

_MOST_PANELS: Final = 6
_PANEL_HEIGHT: Final = 260
#: Scores in one picture, over all panels, the newest: Dagster stores it with every event.
_MOST_SCORES: Final = 1_200
#: Points of a line that are marked; more would hide it.
_MOST_MARKS: Final = 100


@dataclass(frozen=True, slots=True)
class DecisionScore:
    """Score of a decision; the threshold is None while a dynamic one has seen too few values."""

    time: datetime
    score: float
    threshold: float | None
    fire: bool


def decision_scores(decisions: Sequence[DecisionRow]) -> dict[str, list[DecisionScore]]:
    """Scores by name: ``score`` for the decision itself, members and metrics by their paths, for example ``by_drift/mmd``."""
    scores: dict[str, list[DecisionScore]] = {}
    for row in decisions:
        for name, content in _parts("", {"score": row.score, "threshold": row.threshold, "details": row.details}):
            if content.get("score") is not None:
                threshold = content.get("threshold")
                score = DecisionScore(row.time, float(content["score"]), threshold, bool(content.get("fire", row.fire)))
                scores.setdefault(name or "score", []).append(score)
    return scores


def scores_and_thresholds(decisions: Sequence[DecisionRow], *, title: str) -> str:
    """Draw scores and their thresholds, one panel each, with the moments when a trigger fired, as SVG."""
    series = dict(list(decision_scores(decisions).items())[:_MOST_PANELS])
    newest = {name: scores[-(_MOST_SCORES // len(series)) :] for name, scores in series.items()}
    begin = min((scores[0].time for scores in newest.values()), default=None)
    # Tick labels that are hours apart have no year.
    span = f", {_day(begin)} to {_day(decisions[-1].time)}" if begin is not None else ""
    height = _PANEL_HEIGHT if len(newest) > 1 else HEIGHT
    panels = []
    for number, (name, scores) in enumerate(newest.items() or [("score", [])]):
        label = f"sample time (UTC){span}" if number >= len(newest) - 1 else ""
        note = "no decision was taken from a score yet"
        axes = Axes("" if number else title, label, name, times=True, note=note, height=height)
        panels.append((axes, _lines(scores)))
    fired = [row.time.timestamp() for row in decisions if row.fire and begin is not None and row.time >= begin]
    return panel_chart(panels, Verticals(fired, "a trigger", COLOURS[2]))


def _parts(path: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A decision and its members and metrics, each with its path."""
    yield path, content
    details = content.get("details") or {}
    for kind in ("members", "metrics"):
        for name, part in (details.get(kind) or {}).items():
            if isinstance(part, Mapping):
                yield from _parts(f"{path}/{name}" if path else name, part)


def _lines(scores: Sequence[DecisionScore]) -> list[Line]:
    mark: Mark = "dot" if len(scores) <= _MOST_MARKS else ""
    at = [score.time.timestamp() for score in scores]
    return [
        Line("score", list(zip(at, [score.score for score in scores], strict=True)), COLOURS[0], mark=mark),
        Line("threshold", list(zip(at, [score.threshold for score in scores], strict=True)), COLOURS[1], dashed=True),
    ]


def fill_over_time(fills: Sequence[FillPoint], *, min_fill: float, title: str) -> str:
    """Draw C / n of an R-TBS with its triggers, and the share below which a trigger is skipped, as SVG."""
    axes = Axes(title, "sample time (UTC)", "fill: C / n", times=True, y_range=(0.0, 1.05), note="nothing was taken in yet")
    shown = fills[-_MOST_SCORES:]
    points = [(point.time.timestamp(), point.fill) for point in shown]
    lines = [Line("fill", points, COLOURS[0], mark="dot" if len(points) <= _MOST_MARKS else "")]
    if min_fill > 0 and points:
        lines.append(Line("min_fill", [(points[0][0], min_fill), (points[-1][0], min_fill)], COLOURS[1], dashed=True))
    ends = [list(of_trigger)[-1] for _, of_trigger in groupby(shown, key=lambda point: point.ordinal)]
    marks: tuple[tuple[bool, Mark, str], ...] = ((False, "triangle", "trained on"), (True, "cross", "skipped"))
    for skipped, mark, label in marks:
        at = [(point.time.timestamp(), point.fill) for point in ends if point.skipped is skipped]
        if at:
            lines.append(Line(label, at, COLOURS[3 if skipped else 2], mark=mark, joined=False))
    return line_chart(axes, lines)


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d}"
