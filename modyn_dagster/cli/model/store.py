"""``modyn-dagster model``: list, show, compare, verify and delete stored models, and name the live one."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import Moment, show_table, utc
from modyn_dagster.cli.model.export import export
from modyn_dagster.cli.model.probe import probe
from modyn_dagster.cli.project import chosen_model, open_store, store_option
from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelInfo, ModelStore


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
    needing = _dependents(store, chosen)
    click.echo(f"{chosen}: {store.size(chosen)} bytes, needed by {len(needing)} others")
    if not yes:
        click.confirm("Delete it?", abort=True)
    before = _stored_bytes(store)
    with progress_bar("delete", counted=False):
        store.delete(chosen, rebase=rebase)
    stored_again = f", {len(needing)} models stored again" if needing else ""
    click.echo(f"deleted{stored_again}; the store is {before - _stored_bytes(store):,} bytes smaller")


def _dependents(store: "ModelStore", model: "ModelId") -> "list[ModelId]":
    found = []
    for each in store.list():
        try:
            if model in store.info(each).needs:
                found.append(each)
        except (CorruptFile, UnknownModel) as error:
            click.echo(f"damaged: {error}", err=True)
    return found


def _stored_bytes(store: "ModelStore") -> int:
    total = 0
    for each in store.list():
        # A name that leads to no file takes no place.
        with suppress(UnknownModel):
            total += store.size(each)
    return total


@click.group()
def model() -> None:
    """Look into the model store, compare, verify, export and delete models, and probe whether trainings repeat."""


model.add_command(delete)
model.add_command(export)
model.add_command(probe)


@model.command("list")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(root: str | None, as_json: bool) -> None:
    """Every model: how it is stored, what it derives from, and its bytes against those of its weights."""
    from modyn_dagster.reporting.model_tables import model_json, models_table

    infos = _infos(open_store(root))
    if as_json:
        click.echo(json.dumps([model_json(info) for info in infos], indent=2))
        return
    show_table(models_table(infos).rich())


@model.command()
@click.argument("model")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(model: str, root: str | None, as_json: bool) -> None:
    """One model: why it is stored as it is, its architecture, environment and provenance, and its tensors.

    MODEL is an id, or its first digits.
    """
    from modyn_dagster.reporting.model_tables import model_json, tensors_table

    store = open_store(root)
    info = store.info(chosen_model(store, model))
    environment = store.environment(info.id)
    content = model_json(info) | {"environment": None if environment is None else environment.to_json()}
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    for name, value in content.items():
        click.echo(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    show_table(tensors_table(info).rich())


@model.command()
@store_option
def tree(root: str | None) -> None:
    """Which model derives from which; an only child stands right below its parent."""
    from modyn_dagster.reporting.model_tables import model_line, tree_lines

    store = open_store(root)
    for line in tree_lines(store.tree(), lambda model: model_line(store.info(model))):
        click.echo(line)


@model.command()
@click.argument("a")
@click.argument("b")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of names.")
def diff(a: str, b: str, root: str | None, as_json: bool) -> None:
    """The layers in which models A and B differ, by their trees of hashes: no weight is read."""
    from modyn_dagster.reporting.model_tables import difference_table

    store = open_store(root)
    one, other = (store.info(chosen_model(store, each)) for each in (a, b))
    names = store.diff(one.id, other.id)
    if as_json:
        click.echo(json.dumps(list(names)))
        return
    show_table(difference_table(one, other, names).rich())


@model.command()
@click.argument("model", required=False)
@store_option
def verify(model: str | None, root: str | None) -> None:
    """Read MODEL, or every one, and compare every tensor with its hash.

    Damage is named by tensor and file; then the exit code is 1.
    """
    store = open_store(root)
    chosen = None if model is None else chosen_model(store, model)
    with progress_bar("verify") as progress:
        damage = store.verify(chosen, progress=progress)
    for error in damage:
        click.echo(f"damaged: {error}", err=True)
    click.echo(f"{len(store.list()) if chosen is None else 1} models read, {len(damage)} damaged")
    if damage:
        raise click.exceptions.Exit(1)


@model.command()
@click.argument("pipeline")
@click.option("--at", "moment", type=Moment(), help="ISO 8601, in UTC where it names no time zone; default: now.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def live(pipeline: str, moment: datetime | None, as_json: bool) -> None:
    """The model that PIPELINE had live at a moment: the newest one its live runs had trained by then."""
    from modyn_dagster.catalog.results.models import live_model
    from modyn_dagster.catalog.triggers import partition_key
    from modyn_dagster.cli.project import open_platform
    from modyn_dagster.errors import RunError

    at = datetime.now(UTC) if moment is None else moment
    platform = open_platform()
    with platform.transaction() as conn:
        found = live_model(conn, platform.pipeline(pipeline).name, at)
    platform.close()
    if found is None:
        rule = "only live runs count (`pipeline show` lists their models), and a model is live from when it was trained"
        raise RunError(f"{pipeline} had no live model at {utc(at)} UTC; {rule}")
    shown = {
        "model": found.hash,
        "trigger": partition_key(found.run_id, found.ordinal),
        "live_from": found.created_at.astimezone(UTC).isoformat(),
    }
    click.echo(json.dumps(shown) if as_json else "\n".join(f"{name}: {value}" for name, value in shown.items()))


@model.command()
@store_option
def gc(root: str | None) -> None:
    """Remove what killed writers left, and documents that no model refers to; models stay."""
    store = open_store(root)
    with progress_bar("gc") as progress:
        gone = store.gc(progress=progress)
    for path in gone:
        click.echo(path)
    click.echo(f"{len(gone)} files removed")


def _infos(store: "ModelStore") -> "Sequence[ModelInfo]":
    """Of the models that can be read; the others are named on standard error."""
    from modyn_dagster.errors import CorruptFile, UnknownModel

    def readable(models: "Sequence[ModelId]") -> "Iterator[ModelInfo]":
        for each in models:
            try:
                yield store.info(each)
            except (CorruptFile, UnknownModel) as error:
                click.echo(f"damaged: {error}", err=True)

    return list(readable(store.list()))
