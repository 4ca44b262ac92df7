"""``modyn-dagster model delete``: a model leaves the store, and none that needs it breaks."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.model_progress import progress_bar
from modyn_dagster.cli.model_store import chosen_model, open_store, store_option
from modyn_dagster.errors import CorruptFile, UnknownModel

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelStore


@click.command()
@click.argument("model")
@store_option
@click.option("--rebase", is_flag=True, help="Store the models that need it again without it, instead of refusing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(model: str, root: str | None, rebase: bool, yes: bool) -> None:
    """Remove MODEL for good; refused while others cannot be had without it, unless --rebase.

    A run that trained it, or starts or is judged from it, is not asked: its pages say then that the model is gone.
    """
    store = open_store(root)
    chosen = chosen_model(store, model)
    needing = _needing(store, chosen)
    click.echo(f"{chosen}: {store.size(chosen)} bytes, needed by {len(needing)} others")
    if not yes:
        click.confirm("Delete it?", abort=True)
    before = _bytes(store)
    with progress_bar("delete", counted=False):
        store.delete(chosen, rebase=rebase)
    stored_again = f", {len(needing)} models stored again" if needing else ""
    click.echo(f"deleted{stored_again}; the store is {before - _bytes(store):,} bytes smaller")


def _needing(store: "ModelStore", model: "ModelId") -> "list[ModelId]":
    found = []
    for each in store.list():
        try:
            if model in store.info(each).needs:
                found.append(each)
        except (CorruptFile, UnknownModel) as error:
            click.echo(f"damaged: {error}", err=True)
    return found


def _bytes(store: "ModelStore") -> int:
    total = 0
    for each in store.list():
        # A name that leads to no file takes no place.
        with suppress(UnknownModel):
            total += store.size(each)
    return total
