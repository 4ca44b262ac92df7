"""Metadata of a partition of ``<pipeline>/evaluation``: scores by interval and by slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.entries import CHART, PICTURE, rounded, table_entry
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations

if TYPE_CHECKING:
    from datetime import datetime

    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.reporting.tables import Table


#: Lines of one table; the catalog and the report have all cells.
_MOST_LINES: Final = 300


def slices_metadata(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> dict[str, Any]:
    """Two tables of one model's cells of subsets: a line per slice, and a line per interval and slice; none without slices."""
    if not cells:
        return {}
    return {
        "slices": dg.MetadataValue.md(_slice_means(cells, metrics)),
        "slice_scores": dg.MetadataValue.md(_slice_lines(cells, metrics)),
    }


def _slice_means(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> str:
    from modyn_dagster.reporting.tables import Table

    rows = []
    for subset in (shown := sorted({cell.subset for cell in cells}))[:_MOST_LINES]:
        own = [cell for cell in cells if cell.subset == subset]
        counts = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in own}
        values = [[cell.value for cell in own if cell.metric == metric and cell.value is not None] for metric in metrics]
        means = [f"{mean(each):.4f}" if each else "–" for each in values]
        rows.append((subset, str(len(counts)), f"{sum(counts.values()):,}", *means))
    caption = f"this model; unweighted means over the intervals that have a value{_left_out(len(shown), 'slices')}"
    return Table(("slice", "intervals", "samples", *metrics), tuple(rows), caption).markdown()


def _slice_lines(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> str:
    from modyn_dagster.reporting.tables import Table, cell_text, interval_text

    by_place = {(cell.interval_start, cell.interval_end, cell.subset, cell.metric): cell for cell in cells}
    places = {place[:3]: cell.n_samples for place, cell in by_place.items()}
    rows = [
        (interval_text(*place[:2]), place[2], f"{n:,}", *(cell_text(by_place.get((*place, metric))) for metric in metrics))
        for place, n in sorted(places.items())[-_MOST_LINES:]
    ]
    caption = f"this model{_left_out(len(places), 'lines, the newest')}"
    return Table(("interval", "slice", "samples", *metrics), tuple(rows), caption).markdown()


def _left_out(n: int, what: str) -> str:
    return f"; {_MOST_LINES} of {n:,} {what}" if n > _MOST_LINES else ""


#: Metadata of an evaluation: how many intervals it has scored.
INTERVALS: Final = "intervals"


def n_intervals(cells: Sequence[EvaluationRow]) -> int:
    """Number of intervals among cells."""
    return len({(cell.interval_start, cell.interval_end) for cell in cells})


def evaluation_metadata(
    context: TriggerContext, cells: Sequence[EvaluationRow], composite: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Metadata of a materialized evaluation; ``composite`` is that of its run, read here by default."""
    spec = context.spec.evaluation
    metadata: dict[str, Any] = {}
    for metric in (spec.score_metric, *(name for name in spec.metrics if name != spec.score_metric)):
        values = [cell.value for cell in cells if cell.metric == metric and cell.value is not None]
        if values:
            # One label has a capital: the score is the first to read.
            metadata[f"{'Mean' if metric == spec.score_metric else 'mean'} {metric}"] = rounded(mean(values))
    metadata |= {
        **(composite_metadata(context) if composite is None else composite),
        "dagster/row_count": len(cells),
        INTERVALS: n_intervals(cells),
        "scores": table_entry(cells_table(cells, spec.metrics, context.spec.training.possibly_seen_until)),
    }
    if not spec.slices:
        return metadata
    with context.platform.transaction() as conn:
        known = list_evaluations(conn, context.run.id, context.trigger.id, subsets=True)
    return metadata | slices_metadata([cell for cell in known if cell.subset], spec.metrics)


def composite_metadata(context: TriggerContext) -> dict[str, Any]:
    """Metadata that the evaluations of a run share: scores of its composite models, as a table and as a picture."""
    from modyn_dagster.reporting.plots.sketches import scores_sketch
    from modyn_dagster.reporting.plots.sparklines import sparkline
    from modyn_dagster.reporting.summary import summarise_run
    from modyn_dagster.reporting.tables import scores_table

    with context.platform.transaction() as conn:
        summary = summarise_run(conn, context.run)
    small = sparkline(f"{summary.metric} over time", {"active": [score.value for score in summary.active]})
    return {
        **({PICTURE: dg.MetadataValue.md(small)} if small else {}),
        CHART: dg.MetadataValue.md(scores_sketch(summary)),
        "composite_scores": dg.MetadataValue.md(scores_table(summary).markdown()),
    }


def cells_table(cells: Sequence[EvaluationRow], metrics: Sequence[str], until: datetime | None) -> Table:
    """Table of one model's cells: a line per interval, a column per metric.

    ``until`` is the time up to which a pretrained model may have seen the data; intervals that begin before it are marked.
    """
    from modyn_dagster.reporting.tables import POSSIBLY_SEEN, Table, cell_text, interval_text

    by_place = {(cell.interval_start, cell.interval_end, cell.metric): cell for cell in cells}
    intervals = {(cell.interval_start, cell.interval_end): cell for cell in cells}
    rows = [
        (
            interval_text(cell.interval_start, cell.interval_end)
            + (" *" if cell.seen_in_training else "")
            + (" †" if until is not None and cell.interval_start < until else ""),
            f"{cell.n_samples:,}",
            *(cell_text(by_place.get((*place, metric))) for metric in metrics),
        )
        for place, cell in sorted(intervals.items())
    ]
    caption = "this model; * it saw samples of the interval in training" + ("" if until is None else f"; {POSSIBLY_SEEN}")
    return Table(("interval", "samples", *metrics), tuple(rows), caption)
