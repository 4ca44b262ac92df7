"""Metadata of a partition of ``<pipeline>/model``: training, and how the model is stored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.assets.metadata.batches import time_text
from modyn_dagster.assets.metadata.entries import rounded, table_entry
from modyn_dagster.catalog.results.models import ModelRow, newest_model
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.errors import CorruptFile, UnknownModel

#: Batches in the table of a model's samples.
_MOST_BATCHES = 20

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId
    from modyn_dagster.pipeline.context import TriggerContext


def stored_metadata(context: TriggerContext, row: ModelRow, key: dg.AssetKey) -> dict[str, Any]:
    """Size against a full snapshot, strategy and its reason, the parent with a link, and the lineage."""
    from modyn_dagster.reporting.model_tables import bytes_text, lineage_lines, stored_share

    store = context.platform.models_of(context.spec)
    try:
        info = store.info(row.hash)
    except (UnknownModel, CorruptFile) as error:
        return {"stored": f"not to be read: {error}"}
    lines = lineage_lines(store, row.hash)
    size = f"{bytes_text(info.n_bytes)} for {bytes_text(info.full_bytes)} of weights ({stored_share(info)})"
    return {
        "stored": f"{size}, as {info.strategy}: {info.reason}",
        "stored_bytes": info.n_bytes,
        "parent_model": info.base or "none",
        "model_tree": dg.MetadataValue.md("\n".join(["```", *lines, "```"])),
        **_parent_link(context, row, info.base, key),
    }


def samples_by_batch(context: TriggerContext) -> dict[str, Any]:
    """Lineage of a model: the samples that it was trained on, by batch, the largest numbers first."""
    from modyn_dagster.pipeline.operate.model_lineage import counts_by_batch
    from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
    from modyn_dagster.reporting.tables import Table

    row = context.training_set
    if row is None or row.removed_at is not None:
        return {}
    try:
        counts = sorted(counts_by_batch(open_training_set(context, row)), key=lambda count: (-count[1], count[0]))
    except CorruptFile as error:
        return {"samples_by_batch": f"not to be read: {error}"}
    names = {batch.ordinal: batch.partition_key for batch in context.view.batches}
    rows = tuple((names.get(ordinal, str(ordinal)), f"{n:,}") for ordinal, n in counts[:_MOST_BATCHES])
    caption = f"{row.n_samples:,} samples of {len(counts)} batches; `modyn-dagster model lineage` shows all"
    return {"samples_by_batch": table_entry(Table(("batch", "samples"), rows, caption))}


def _parent_link(context: TriggerContext, row: ModelRow, parent: ModelId | None, key: dg.AssetKey) -> dict[str, Any]:
    """To its partition: of the model's own run where that has trained it, else of the run before."""
    if parent is None:
        return {}
    with context.platform.transaction() as conn:
        found = newest_model(conn, row.run_id, parent)
        if found is None or get_run(conn, found.run_id).pipeline != context.run.pipeline:
            return {}
    base = os.environ.get("MODYN_DAGSTER_UI_URL", "").rstrip("/")
    partition = partition_key(found.run_id, found.ordinal)
    # Without an address it is one of the same server.
    return {"parent": dg.MetadataValue.url(f"{base}/assets/{'/'.join(key.path)}?partition={partition}")}


def model_metadata(row: ModelRow) -> dict[str, Any]:
    """Metadata of a materialized model: losses, and what it was trained on."""
    from modyn_dagster.reporting.plots.sketches import loss_sketch
    from modyn_dagster.reporting.plots.sparklines import sparkline

    losses = [float(loss) for loss in row.losses]
    points = [(step, loss) for step, loss in row.curve]
    small = sparkline("Training loss", {"loss": [loss for _, loss in points]})
    return {
        "Final loss": rounded(losses[-1]),
        **({"Training loss": dg.MetadataValue.md(small)} if small else {}),
        "loss_chart": dg.MetadataValue.md(loss_sketch(points, losses)),
        "samples": row.n_samples,
        "epochs": len(losses),
        "first_loss": rounded(losses[0]),
        "model": row.hash,
        "previous_model": row.previous_hash or "none: trained from scratch",
        "trained_from": time_text(row.train_start),
        "trained_to": time_text(row.train_end),
        **_pretrained(row),
    } | _epochs(row)


def _pretrained(row: ModelRow) -> dict[str, Any]:
    """Tensors of pretrained weights that were taken over, and names of those that were not."""
    report = row.training.get("pretrained")
    if report is None:
        return {}
    names = {"missing": report["missing"], "unexpected": report["unexpected"]}
    names["reinitialised"] = [f"{each['name']} {each['file']} -> {each['model']}" for each in report["reinitialised"]]
    counts = ", ".join(f"{len(listed)} {kind}" for kind, listed in names.items())
    return {"pretrained": f"{report['loaded']} tensors of the file, {counts}", "pretrained_names": names}


def _epochs(row: ModelRow) -> dict[str, Any]:
    from modyn_dagster.reporting.plots.sketches import epochs_sketch

    epochs = list(row.training.get("epochs", ()))
    seconds = sum(sum(epoch["seconds"].values()) for epoch in epochs)
    if not epochs or seconds == 0:
        return {}
    return {
        "steps": row.training["n_steps"],
        "samples_per_second": round(sum(epoch["n_samples"] for epoch in epochs) / seconds),
        "epoch_chart": dg.MetadataValue.md(epochs_sketch(epochs)),
    }


def model_details(row: ModelRow) -> dict[str, Any]:
    """Losses of the epochs, architecture and surroundings, for the last entry."""
    surroundings = row.training.get("surroundings")
    return {
        "epoch_losses": [float(loss) for loss in row.losses],
        "architecture": dict(row.architecture),
        "surroundings": dict(surroundings) if surroundings else None,
    }
