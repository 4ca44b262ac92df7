"""The live run of a pipeline: begun, continued, or succeeded by the run of a changed spec."""

from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, create_run, ensure_pipeline, ensure_spec, live_run, move_run
from modyn_dagster.catalog.triggers import unfinished_trigger
from modyn_dagster.errors import RunError
from modyn_dagster.keys import ORIGIN
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.load import spec_hash


def require_same_spec(platform: Platform, run: RunRow) -> None:
    """Raise ``RunError`` when a pipeline's file says something else than its live run was begun with.

    Only the sensor begins the run of a changed spec. Somebody else who did, while the sensor's process has not loaded the
    change, would see it begin yet another run with the spec of before.
    """
    if run.spec_hash != spec_hash(platform.pipeline(run.pipeline)):
        raise RunError(
            f"the spec of {run.pipeline} has changed since {run.title} began; its sensor begins a new run once Dagster has "
            "loaded the change (within a minute or two), try again then"
        )


def current_live_run(platform: Platform, pipeline: str) -> RunRow:
    """The live run to go on with.

    The first one begins at the first batch, or after the newest with ``start: now``. When the spec's hash has changed, the
    old run ends at its cursor, once its unfinished trigger is done, and a new one begins there with fresh policy state and
    the old run's last model as its previous model. A run that an operator stopped stays until it is resumed.
    """
    spec = platform.pipeline(pipeline)
    view = platform.view(spec.dataset)
    with platform.transaction() as conn:
        pipeline_id = ensure_pipeline(conn, pipeline, view.row.id)
        spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        old = live_run(conn, pipeline)
        begin: dict[str, Any] = {"origin": ORIGIN, "cursor": ORIGIN, "last_ordinal": -1}
        if old is not None:
            if old.spec_hash == spec_hash(spec) or unfinished_trigger(conn, old.id) is not None:
                return old
            if old.state in ("stopping", "stopped"):
                return old
            if old.is_open:
                move_run(conn, old, state="ended", finished_at=sa.func.now())
            begin = {"origin": old.cursor, "cursor": old.cursor, "last_ordinal": old.last_ordinal}
            begin["previous_model"] = old.previous_model
        elif spec.start == "now":
            begin = {"origin": view.last_key, "cursor": view.last_key, "last_ordinal": view.last_ordinal}
        return create_run(
            conn,
            pipeline_id=pipeline_id,
            spec_id=spec_id,
            mode="live",
            seed=spec.seed,
            threads=spec.threads,
            **begin,
        )
