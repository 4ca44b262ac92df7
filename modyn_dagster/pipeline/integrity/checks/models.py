"""Checks of models: every tensor against its hash, and models that triggers name against those in the stores."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modyn_dagster.catalog.results.models import ModelRow, find_model, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.pipeline.integrity.checks.check import Check
from modyn_dagster.pipeline.integrity.checks.run_files import owner_of
from modyn_dagster.pipeline.integrity.finding import Finding, Kind, finding_of, shown_path
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.remake.run_files import remake_model
from modyn_dagster.pipeline.operate.store_audit import audit_models
from modyn_dagster.pipeline.platform import Platform

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelStore


def model_checks(platform: Platform, run: RunRow, seen: set[tuple[str, str]]) -> Iterator[Check]:
    """Check the models of a run in its store, without those that are ``seen`` already, by root and id; adds to these."""
    store = platform.models_of(platform.spec_of(run))
    with platform.transaction() as conn:
        triggers = {trigger.id: trigger for trigger in list_triggers(conn, run.id)}
        models = list_models(conn, run.id)
    for model in models:
        place = str(store.root), model.hash
        if model.removed_at is None and place not in seen:
            seen.add(place)
            trigger = triggers[model.trigger_id]
            findings = partial(_model_findings, platform, run, trigger, store, model.hash)
            remake = partial(remake_model, platform, run, trigger)
            yield Check(["models"], [], findings, partial(_is_stored, platform, model), remake, trigger.ordinal)


def weight_checks(platform: Platform) -> Iterator[Check]:
    """Check the cached weights of models that are stored as their provenance."""
    cache = platform.weight_cache
    for model in cache.list():
        remedy = "`modyn-dagster repair` removes it, and whoever needs the model trains it again"
        findings = partial(_damage, platform, "weights", cache, model, "cache", remedy)
        # Whoever stores newer weights deletes the oldest.
        yield Check(["weights"], [], findings, partial(_is_cached, cache, model), partial(cache.delete, model))


def unnamed_models(platform: Platform) -> Iterator[Finding]:
    """Yield the stored models that no trigger names, which do no harm."""
    for found in audit_models(platform).unnamed:
        remedy = f"`modyn-dagster model delete {found.model[:12]}` removes it, unless it is yours"
        if found.needed_by:
            remedy = f"it stays for {len(found.needed_by)} models that need it"
        path = f"{shown_path(platform.home, found.root)}/{found.model}"
        yield Finding("unnamed", "unnamed", path, "no trigger", f"{found.n_bytes:,} bytes that no row names", remedy)


def _model_findings(
    platform: Platform, run: RunRow, trigger: TriggerRow, store: "ModelStore", model: "ModelId", pace: Pace
) -> Iterator[Finding]:
    remedy = (
        "`modyn-dagster repair` trains the same model again and stores it, if data, code and libraries are unchanged; "
        f"else restore a backup of {shown_path(Path(), store.root)}"
    )
    yield from _damage(platform, "models", store, model, owner_of(run, trigger), remedy, pace)


def _damage(
    platform: Platform, kind: Kind, store: "ModelStore", model: "ModelId", owner: str, remedy: str, pace: Pace
) -> Iterator[Finding]:
    try:
        pace.took(store.size(model))
        for error in store.verify(model):
            yield finding_of(kind, platform.home, error, f"{owner}, model {model}", remedy)
    except UnknownModel:
        error = CorruptFile(f"{store.root}/{model}", "a file of the model", "no file")
        yield finding_of(kind, platform.home, error, f"{owner}, model {model}", remedy)


def _is_stored(platform: Platform, model: ModelRow) -> bool:
    """True unless retention has removed the model, or its run is gone."""
    with platform.transaction() as conn:
        row = find_model(conn, model.trigger_id)
    return row is not None and row.removed_at is None


def _is_cached(cache: "ModelStore", model: "ModelId") -> bool:
    return model in cache.list()
