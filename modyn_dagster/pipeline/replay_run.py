"""Which batches a replay walks, and which run it continues."""

from collections.abc import Sequence
from typing import Any

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import ensure_dataset
from modyn_dagster.catalog.runs import RunRow, create_run, ensure_pipeline, ensure_spec, move_run, replay_run
from modyn_dagster.errors import BatchGap, RunError, UnknownName
from modyn_dagster.keys import ORIGIN, key_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay_options import options_of, require_same_dataset, require_same_options
from modyn_dagster.pipeline.replay_request import ReplayRequest
from modyn_dagster.spec.load import spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec


def selected_batches(platform: Platform, pipeline: str, partition_keys: Sequence[str]) -> list[BatchRow]:
    """The ingested batches of a selection in ordinal order; failed ones are passed over.

    Raises ``BatchGap`` when an ingested batch between the first and the last one was left out, and ``RunError`` for a batch
    that is not ingested yet.
    """
    known = _batches(platform, platform.pipeline(pipeline))
    by_key = {batch.partition_key: batch for batch in known}
    missing = [key for key in partition_keys if key not in by_key]
    if missing:
        raise UnknownName("batch", missing[0], [*by_key][-5:])
    chosen = sorted((by_key[key] for key in partition_keys), key=lambda batch: batch.ordinal)
    for batch in known:
        if batch.state == "open" and chosen and batch.ordinal <= chosen[-1].ordinal:
            raise RunError(f"batch {batch.partition_key!r} is not ingested yet; materialize its samples first")
    ingested = [batch for batch in chosen if batch.state == "ingested"]
    if not ingested:
        raise RunError(f"the selection of {pipeline} holds no ingested batch")
    _require_no_gap(pipeline, known, ingested)
    return ingested


def continue_or_create(platform: Platform, request: ReplayRequest, selection: Sequence[BatchRow]) -> RunRow:
    """The run of a replay: the newest with its identity, or a new one that begins before the first selected batch."""
    spec = platform.pipeline(request.pipeline)
    known = _batches(platform, spec)
    seed = spec.seed if request.seed is None else request.seed
    options = options_of(request)
    with platform.transaction() as conn:
        dataset = ensure_dataset(conn, platform.project.datasets[spec.dataset])
        # The pipeline's row is locked: two replays that start at once find or make the same run.
        pipeline_id = ensure_pipeline(conn, spec.name, dataset.id)
        found = replay_run(conn, spec.name, spec_hash=spec_hash(spec), seed=seed, name=request.name)
        if found is None or request.restart:
            spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
            require_same_dataset(conn, options, dataset.id)
            begin = _begin(known, selection[0]) | {"options": options}
            identity = {"name": request.name, "seed": seed, "threads": spec.threads}
            return create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode="replay", **identity, **begin)
        require_same_options(found, options)
        _require_continuation(found, known, selection)
        if found.state == "finished" and selection[-1].ordinal > found.last_ordinal:
            found = move_run(conn, found, state="active", finished_at=None)
        return found


def _begin(known: Sequence[BatchRow], first: BatchRow) -> dict[str, Any]:
    before = [batch for batch in known if batch.ordinal < first.ordinal and batch.state == "ingested"]
    origin = key_of(before[-1].ordinal, int(before[-1].n_samples or 0) - 1) if before else ORIGIN
    return {"origin": origin, "cursor": origin, "last_ordinal": first.ordinal - 1}


def _batches(platform: Platform, spec: PipelineSpec) -> list[BatchRow]:
    with platform.transaction() as conn:
        dataset = ensure_dataset(conn, platform.project.datasets[spec.dataset])
        return list_batches(conn, dataset.id)


def _require_no_gap(pipeline: str, known: Sequence[BatchRow], chosen: Sequence[BatchRow]) -> None:
    ordinals = {batch.ordinal for batch in chosen}
    last = chosen[0]
    for batch in known:
        if batch.state != "ingested" or not chosen[0].ordinal <= batch.ordinal <= chosen[-1].ordinal:
            continue
        if batch.ordinal not in ordinals:
            following = next(b for b in chosen if b.ordinal > batch.ordinal)
            raise BatchGap(f"the selection of {pipeline}", last.partition_key, following.partition_key)
        last = batch


def _require_continuation(run: RunRow, known: Sequence[BatchRow], selection: Sequence[BatchRow]) -> None:
    skipped = [b for b in known if run.last_ordinal < b.ordinal < selection[0].ordinal and b.state == "ingested"]
    if skipped:
        last = next((b.partition_key for b in known if b.ordinal == run.last_ordinal), "(none)")
        raise BatchGap(run.title, last, selection[0].partition_key)
