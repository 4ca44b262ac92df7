"""Completion of removals: models, files and displays go after the rows, in steps that may be repeated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from modyn_dagster.catalog.removal.journal import Kind, RemovalRow, end_removal, unfinished_removals
from modyn_dagster.catalog.results.models import lock_model_removals, model_uses
from modyn_dagster.errors import UnknownModel
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.removal.plan import RemovalPlan
from modyn_dagster.pipeline.platform import Platform

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelStore

#: Removes a subject from the displays, and yields a line for everything that stays there.
Forget = Callable[[RemovalPlan], Iterator[str]]


def unfinished(platform: Platform, kind: Kind, name: str) -> list[RemovalRow]:
    """Removals of a pipeline or dataset whose rows are gone, and whose files may not be."""
    with platform.transaction() as conn:
        return unfinished_removals(conn, kind, name)


def complete(platform: Platform, kind: Kind, name: str, forget: Forget) -> list[str]:
    """Complete the begun removals of a pipeline or dataset; returns a line for everything that stays.

    Every step may be repeated: after a kill at any point another call removes the rest and ends the same.
    """
    stays = []
    for row in unfinished(platform, kind, name):
        plan = RemovalPlan.of(row)
        stays += remove_models(platform, plan.models, rebase=plan.rebase)
        for path in plan.paths:
            _remove(platform, path)
        stays += forget(plan)
        with platform.transaction() as conn:
            end_removal(conn, row)
    return stays


def remove_models(platform: Platform, models: "Mapping[str, Sequence[ModelId]]", *, rebase: bool) -> list[str]:
    """Remove models, by the root of their store, that no trigger names; returns a line for each that stays.

    With ``rebase`` models that need one of them are stored again without it. A second call removes nothing more.
    """
    stays: list[str] = []
    if not models:
        return stays
    with platform.transaction() as conn:
        lock_model_removals(conn)
        # Trained again since: its new run names it.
        named = {use.hash for use in model_uses(conn) if use.removed_at is None}
        for root, going in models.items():
            store = platform.store_at(root)
            staying = store.delete_unneeded([model for model in going if model not in named])
            if rebase:
                staying = _rebase_and_delete(store, staying)
            stays += [f"model {model} in {root}: other models need it" for model in staying]
    return stays


def _rebase_and_delete(store: "ModelStore", models: "Sequence[ModelId]") -> "list[ModelId]":
    """Delete models, after storing those that need them again; returns none."""
    for model in models:
        try:
            store.delete(model, rebase=True)
        except UnknownModel:
            # Removed by another process.
            continue
    return []


def _remove(platform: Platform, relative: str) -> None:
    # Settled, too: the journal is about to forget it.
    path = platform.place_of(relative)
    files_at(path).remove_below(path)
