"""Entries of metadata in the order and the form in which people read them.

The overview of an asset sorts entries by label, capitals first; partitions and logs keep their order. Markdown of fewer than
1,000 characters is shown in place. So the entries to look at first have capital labels, whose alphabetical order is that of
score, reason, picture; ``DETAILS`` comes after all others. Numbers stay numbers, because Dagster plots them over the partitions.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

if TYPE_CHECKING:
    from modyn_dagster.reporting.tables import Table

DECISION_SCORE: Final = "Decision score"
DECISION_THRESHOLD: Final = "Decision threshold"
REASON: Final = "Reason"
#: Small picture of scores; a larger one is in ``CHART``.
PICTURE: Final = "Score over time"
CHART: Final = "chart"
#: One entry for whatever only a developer looks up: ids, keys, checksums, files.
DETAILS: Final = "… details"

_SHOWN_IN_PLACE: Final = 1_000
_MOST_ROWS_IN_PLACE: Final = 30
_MINUTE: Final = 60.0


def rounded(value: float) -> float:
    """Four significant digits of a number, as a number.

    >>> rounded(0.9540712), rounded(1234567.8)
    (0.9541, 1235000.0)
    """
    return float(f"{value:.4g}")


def decision_entries(score: float | None, threshold: float | None, reason: str) -> dict[str, Any]:
    """Score, threshold and reason of a decision; a number that there is not is left out."""
    numbers = {DECISION_SCORE: score, DECISION_THRESHOLD: threshold}
    return {name: rounded(value) for name, value in numbers.items() if value is not None} | {REASON: reason}


def in_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Entries with the capital labels first, in the order of an asset's overview, for pages that do not sort."""
    leading = sorted(label for label in metadata if label[:1].isupper())
    return {label: metadata[label] for label in leading} | dict(metadata)


def details(content: Mapping[str, Any]) -> dict[str, Any]:
    """The last entry: JSON, without what is None."""
    return {DETAILS: dg.MetadataValue.json({name: value for name, value in content.items() if value is not None})}


def table_entry(table: "Table") -> dg.MetadataValue[Any]:
    """A table in place where it is small, else behind a button."""
    text = table.markdown()
    if len(text) < _SHOWN_IN_PLACE or not 0 < len(table.rows) <= _MOST_ROWS_IN_PLACE:
        return dg.MetadataValue.md(text)
    names = list(table.header)
    # Records are by column: two columns of one name would be one.
    labels = [name if names.index(name) == i else f"{name} ({names[i - 1]})" for i, name in enumerate(names)]
    records = [dg.TableRecord(dict(zip(labels, row, strict=True))) for row in table.rows]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(label, "string") for label in labels]))


def seconds_text(seconds: float) -> str:
    """Length of time in its two largest units, with parts of seconds below a minute.

    >>> seconds_text(72.4), seconds_text(0.01234), seconds_text(7_322)
    ('1 min 12 s', '0.0123 s', '2 h 2 min')
    """
    from modyn_dagster.pipeline.checks import duration_text

    return duration_text(timedelta(seconds=seconds)) if seconds >= _MINUTE else f"{seconds:.3g} s"


def times_entries(seconds: Mapping[str, float]) -> dict[str, Any]:
    """Wall time of stages as a text, and their sum as a number to plot."""
    if not seconds:
        return {}
    text = ", ".join(f"{stage} {seconds_text(value)}" for stage, value in sorted(seconds.items()))
    return {"seconds": rounded(sum(seconds.values())), "time": text}
