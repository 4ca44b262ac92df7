"""Comparison of the catalog with the model stores: models that only one of them knows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modyn_dagster.catalog.results.models import ModelUse, model_uses
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.pipeline.platform import Platform

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelStore


@dataclass(frozen=True, slots=True)
class UnnamedModel:
    """A stored model that no trigger names.

    Attributes:
        root: of its store.
        n_bytes: of its file.
        needed_by: models that cannot be recovered without it.
    """

    model: "ModelId"
    root: str
    n_bytes: int
    needed_by: Sequence["ModelId"]


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of a comparison.

    Attributes:
        named: triggers by the model that they name, without those whose model retention has removed.
        missing: models that triggers name and no store has.
        unnamed: stored models that no trigger names.
    """

    named: Mapping["ModelId", Sequence[ModelUse]]
    missing: Sequence["ModelId"]
    unnamed: Sequence[UnnamedModel]


def stores_of_project(platform: Platform) -> "list[ModelStore]":
    """List the model stores of the project, and those of runs whose pipelines it has no more."""
    with platform.transaction() as conn:
        runs = list_runs(conn)
    stores = [*platform.every_model_store(), *(platform.models_of(platform.recorded_spec(run)) for run in runs)]
    return list({str(store.root): store for store in stores}.values())


def audit_models(platform: Platform) -> Audit:
    """Compare the models that triggers name with those in the stores of the project; reads headers only.

    Stored models are listed before the catalog is read, so a model that is committed meanwhile is on neither list.
    """
    stored = {str(store.root): (store, frozenset(store.list())) for store in stores_of_project(platform)}
    with platform.transaction() as conn:
        uses = model_uses(conn)
    named: dict[ModelId, list[ModelUse]] = defaultdict(list)
    for use in uses:
        if use.removed_at is None:
            named[use.hash].append(use)
    present = frozenset[str]().union(*(models for _, models in stored.values()))
    # A model that was committed since the stores were listed is in one of them now.
    missing = [
        model for model in sorted(named.keys() - present) if not any(has_model(store, model) for store, _ in stored.values())
    ]
    unnamed = [found for store, models in stored.values() for found in _unnamed(store, models, named)]
    return Audit(named, missing, unnamed)


def has_model(store: "ModelStore", model: "ModelId") -> bool:
    """True if a store has a file of a model."""
    try:
        store.size(model)
    except UnknownModel:
        return False
    return True


def needs_of(store: "ModelStore", model: "ModelId") -> Sequence["ModelId"]:
    """Models that one needs itself; none for a damaged or missing one, which `verify` names."""
    try:
        return store.info(model).needs
    except (UnknownModel, CorruptFile):
        return ()


def _unnamed(store: "ModelStore", models: frozenset["ModelId"], named: Mapping["ModelId", object]) -> list[UnnamedModel]:
    unnamed = sorted(models - named.keys())
    if not unnamed:
        return []
    needed_by: dict[ModelId, list[ModelId]] = defaultdict(list)
    for model in sorted(models):
        for need in needs_of(store, model):
            needed_by[need].append(model)
    found = []
    for model in unnamed:
        with suppress(UnknownModel):
            found.append(UnnamedModel(model, str(store.root), store.size(model), needed_by[model]))
    return found
