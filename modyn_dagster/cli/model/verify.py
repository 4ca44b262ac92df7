"""``modyn-dagster model verify``: read stored models, and compare the catalog with the model stores."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import chosen_model, missing_project, open_platform, open_store, store_option
from modyn_dagster.progress import progress_bar
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.errors import CorruptFile
    from modyn_dagster.model_store import ModelStore
    from modyn_dagster.pipeline.operate.store_audit import Audit


@click.command()
@click.argument("model", required=False)
@store_option
def verify(model: str | None, root: str | None) -> None:
    """Read MODEL, or every model, and compare every tensor with its hash; compare the models with the catalog.

    Without MODEL and --store all stores of the project are read, and models are named that a trigger names and no store has
    (missing), and that no trigger names (unnamed), with what to do. The exit code is 1 if a model is damaged or missing.
    """
    if model is not None or root is not None or missing_project(Settings.from_environment().project) is not None:
        store = open_store(root)
        one = None if model is None else chosen_model(store, model)
        damage = _read([store], one)
        say(f"{len(store.list()) if one is None else 1} models read, {len(damage)} damaged")
        faults = len(damage)
    else:
        faults = _verify_project()
    if faults:
        raise click.exceptions.Exit(1)


def _verify_project() -> int:
    """Verify the stores of the project and compare them with its catalog; returns the number of faults."""
    from modyn_dagster.pipeline.operate.store_audit import audit_models, stores_of_project

    with closing(open_platform()) as platform:
        stores = stores_of_project(platform)
        damage = _read(stores, None)
        say(f"{sum(len(store.list()) for store in stores)} models read, {len(damage)} damaged")
        audit = audit_models(platform)
    _show_missing(audit, damage)
    for found in audit.unnamed:
        remedy = f"`modyn-dagster model delete {found.model[:12]}` removes it, unless it is yours"
        if found.needed_by:
            remedy = f"it stays for {len(found.needed_by)} models that need it"
        elsewhere = "" if len(stores) == 1 else f" in {found.root}"
        say(f"unnamed: model {found.model}{elsewhere}, {found.n_bytes:,} bytes: no trigger names it; {remedy}")
    say(f"{len(audit.named)} models named by triggers, {len(audit.missing)} missing; {len(audit.unnamed)} unnamed")
    return len(damage) + len(audit.missing)


def _read(stores: "Sequence[ModelStore]", model: str | None) -> "list[CorruptFile]":
    damage: list[CorruptFile] = []
    for store in stores:
        with progress_bar("verify") as progress:
            damage += store.verify(model, progress=progress)
    for error in damage:
        say(f"damaged: {error}", err=True)
    return damage


def _show_missing(audit: "Audit", damage: "Sequence[CorruptFile]") -> None:
    """Name the triggers of damaged and missing models, and what brings these back."""
    damaged = [stem for error in damage if (stem := PurePath(str(error.path)).stem) in audit.named]
    for kind, models in (("damaged", damaged), ("missing", audit.missing)):
        for model in dict.fromkeys(models):
            first, *others = audit.named[model]
            further = f" and {len(others)} further triggers" if others else ""
            again = f"materialize partition {first.partition_key} of {first.pipeline}/model again"
            remedy = f"restore the file from a backup, or {again}: it trains the same model and stores it"
            say(
                f"{kind}: model {model} of trigger {first.partition_key} of {first.pipeline} ({first.mode}){further}; {remedy}",
                err=True,
            )
