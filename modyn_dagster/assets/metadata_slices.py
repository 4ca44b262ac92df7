"""What a person looks at on a partition of ``<pipeline>/evaluation`` about the slices of its samples."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, Final

import dagster as dg

from modyn_dagster.catalog.evaluations import EvaluationRow

#: Lines of one table; the catalog and the report have all cells.
_MOST_LINES: Final = 300


def slices_metadata(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> dict[str, Any]:
    """Two tables of one model's cells of subsets: a line per slice, and a line per interval and slice; none without slices."""
    if not cells:
        return {}
    return {
        "slices": dg.MetadataValue.md(_means(cells, metrics)),
        "slice_scores": dg.MetadataValue.md(_lines(cells, metrics)),
    }


def _means(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> str:
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


def _lines(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> str:
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
