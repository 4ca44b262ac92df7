"""What a probe found, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modyn_dagster.reporting.tables import Table

if TYPE_CHECKING:
    from modyn_dagster.model_store.probe import Report


def probe_table(report: Report, *, only_different: bool) -> Table:
    """A line per call of a layer: whether inputs, outputs and gradients were the same in both runs."""
    header, *lines = report.table()
    shown = [line for line in lines if not only_different or "DIFFERENT" in line]
    return Table(tuple(header), tuple(tuple(line) for line in shown), f"{len(shown)} of {len(lines)} calls shown")


def verdict(report: Report) -> str:
    """Whether models like this one may be stored as their provenance, and what first speaks against it."""
    places = [f"{name}: {here} there, {now} here" for name, (here, now) in report.environment.items()]
    where = f" (other environments: {'; '.join(places)})" if places else ""
    if report.first is None:
        return f"every bit is the same: provenance is safe for this model{where}"
    first = report.first
    at = f"{first.field} of {first.layer} ({first.kind}), call {first.number} in the {first.phase} pass"
    return f"not safe for provenance: the first difference is in the {at}{where}"
