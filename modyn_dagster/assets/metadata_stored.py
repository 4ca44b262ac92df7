"""What a person sees of how a model is stored: on its partition of ``<pipeline>/model``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.catalog.models import ModelRow, newest_model
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.errors import CorruptFile, UnknownModel

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId
    from modyn_dagster.pipeline.context import TriggerContext


def stored_metadata(context: TriggerContext, row: ModelRow, key: dg.AssetKey) -> dict[str, Any]:
    """Strategy and its reason, bytes against a full snapshot, the parent with a link, and the lineage.

    Times stand beside it: ``seconds_save``, and what the check ``stored_exactly`` took to read it.
    """
    from modyn_dagster.reporting.stored_models import lineage_lines

    store = context.platform.models_of(context.spec)
    try:
        info = store.info(row.hash)
    except (UnknownModel, CorruptFile) as error:
        return {"stored_as": f"not to be read: {error}"}
    lines = lineage_lines(store, row.hash)
    return {
        "stored_as": info.strategy,
        "stored_because": info.reason,
        "stored_bytes": info.n_bytes,
        "full_snapshot_bytes": info.full_bytes,
        "of_full_snapshot": info.n_bytes / info.full_bytes if info.full_bytes else 1.0,
        "parent_model": info.base or "none",
        "model_tree": dg.MetadataValue.md("\n".join(["```", *lines, "```"])),
        **_parent_link(context, row, info.base, key),
    }


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
