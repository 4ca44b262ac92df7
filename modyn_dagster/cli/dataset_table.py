"""Batches as ``modyn-dagster dataset status`` shows them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from modyn_dagster.catalog.batches import BatchRow


def batch_status(name: str, batch: "BatchRow", n_late: int | None) -> dict[str, Any]:
    """A batch as JSON."""
    return {
        "dataset": name,
        "batch": batch.partition_key,
        "ordinal": batch.ordinal,
        "state": batch.state,
        "samples": batch.n_samples,
        "train_samples": batch.n_train,
        "deleted_samples": batch.n_deleted,
        "late_samples": n_late,
        "time_min": batch.time_min.isoformat() if batch.time_min else None,
        "time_max": batch.time_max.isoformat() if batch.time_max else None,
        "labels": batch.label_counts,
        "paths": batch.source["paths"],
        "error": batch.error,
        "delivered_again": batch.repaired_by is not None,
    }


def batch_table(name: str, batches: "Sequence[BatchRow]", late: Mapping[int, int]) -> "Table":
    """The batches of a dataset as a table; ``late`` samples by ordinal."""
    from rich.markup import escape
    from rich.table import Table

    counts = {state: sum(batch.state == state for batch in batches) for state in ("ingested", "open", "failed")}
    samples, deleted = sum(batch.n_samples or 0 for batch in batches), sum(batch.n_deleted for batch in batches)
    shares = [f"{n} of them {what}" for n, what in ((deleted, "deleted"), (sum(late.values()), "late")) if n]
    caption = f"{', '.join([f'{samples} samples', *shares])}; " + ", ".join(f"{n} {state}" for state, n in counts.items())
    table = Table("batch", "state", "samples", "from", "to", "labels", title=name, caption=caption)
    for batch in batches:
        shown = _labels(batch) if batch.state != "failed" else str(batch.error)
        state = "failed, delivered again" if batch.repaired_by is not None else batch.state
        first, last = (f"{moment:%Y-%m-%d %H:%M}" if moment else "" for moment in (batch.time_min, batch.time_max))
        table.add_row(escape(batch.partition_key), state, _samples(batch, late.get(batch.ordinal, 0)), first, last, escape(shown))
    return table


def _samples(batch: "BatchRow", n_late: int) -> str:
    shares = [f"{n} {what}" for n, what in ((batch.n_deleted, "deleted"), (n_late, "late")) if n]
    return str(batch.n_samples or "") + (f" ({', '.join(shares)})" if shares else "")


def _labels(batch: "BatchRow", most: int = 5) -> str:
    counts = sorted((batch.label_counts or {}).items(), key=lambda item: -item[1])
    return ", ".join(f"{label}: {n}" for label, n in counts[:most]) + (", …" if len(counts) > most else "")
