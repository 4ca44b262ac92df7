"""``modyn-dagster model``: list, show, compare, verify and delete stored models, and name the live one."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import Moment, say, show_table, utc
from modyn_dagster.cli.model.compare import compare
from modyn_dagster.cli.model.export import export
from modyn_dagster.cli.model.lineage import lineage
from modyn_dagster.cli.model.probe import probe
from modyn_dagster.cli.model.promotion import history, promote, reject, rollback
from modyn_dagster.cli.model.verify import verify
from modyn_dagster.cli.project import chosen_model, missing_project, open_platform, open_store, store_option
from modyn_dagster.errors import CorruptFile, RunError, UnknownModel
from modyn_dagster.progress import progress_bar
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelInfo, ModelStore


@click.command()
@click.argument("model")
@store_option
@click.option("--rebase", is_flag=True, help="Store the models that need it anew without it, instead of refusing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(model: str, root: str | None, rebase: bool, yes: bool) -> None:
    """Remove MODEL for good; refused while other models need it, unless --rebase.

    Refused, too, while it is the live or newest model or the champion of a pipeline of the project. Older runs that trained it
    are not checked: their pages then say that the model is missing.
    """
    store = open_store(root)
    chosen = chosen_model(store, model)
    _refuse_if_in_use(str(store.root), chosen)
    dependents = [info.id for info in _readable_infos(store) if chosen in info.needs]
    say(f"{chosen}: {store.size(chosen)} bytes, needed by {len(dependents)} others")
    if not yes:
        click.confirm("Delete it?", abort=True)
    before = _stored_bytes(store)
    with progress_bar("delete", counted=False):
        store.delete(chosen, rebase=rebase)
    stored_again = f", {len(dependents)} models stored again" if dependents else ""
    say(f"deleted{stored_again}; the store is {before - _stored_bytes(store):,} bytes smaller")


def _refuse_if_in_use(root: str, model: str) -> None:
    """Raise ``RunError``, naming every use, for a model that a pipeline of the project uses; a folder without one has none."""
    from modyn_dagster.pipeline.operate.models_in_use import models_in_use

    if missing_project(Settings.from_environment().project) is not None:
        return
    with closing(open_platform()) as platform:
        uses = models_in_use(platform, root).get(model, [])
    if uses:
        raise RunError(f"model {model} is {' and '.join(uses)}; train a newer model or remove the pipeline first")


def _readable_infos(store: "ModelStore") -> "Iterator[ModelInfo]":
    """Yield the readable models; name the damaged ones on standard error."""
    for model_id in store.list():
        try:
            yield store.info(model_id)
        except (CorruptFile, UnknownModel) as error:
            say(f"damaged: {error}", err=True)


def _stored_bytes(store: "ModelStore") -> int:
    total = 0
    for model_id in store.list():
        # A name without a file takes no space.
        with suppress(UnknownModel):
            total += store.size(model_id)
    return total


@click.group()
def model() -> None:
    """List, compare, verify, export and delete stored models, and probe whether trainings repeat."""


model.add_command(compare)
model.add_command(delete)
model.add_command(export)
model.add_command(history)
model.add_command(lineage)
model.add_command(probe)
model.add_command(promote)
model.add_command(reject)
model.add_command(rollback)
model.add_command(verify)


@model.command("list")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(root: str | None, as_json: bool) -> None:
    """List every model: storage strategy, base, and stored bytes against the bytes of its weights."""
    from modyn_dagster.reporting.model_tables import model_json, models_table

    infos = list(_readable_infos(open_store(root)))
    if as_json:
        click.echo(json.dumps([model_json(info) for info in infos], indent=2))
        return
    show_table(models_table(infos).rich())


@model.command()
@click.argument("model")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(model: str, root: str | None, as_json: bool) -> None:
    """Show one model: the reason for its storage strategy, its architecture, environment, provenance and tensors.

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
        say(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    show_table(tensors_table(info).rich())


@model.command()
@store_option
def tree(root: str | None) -> None:
    """Show the models as trees of derivation; an only child stands right below its parent."""
    from modyn_dagster.reporting.model_tables import model_line, tree_lines

    store = open_store(root)
    for line in tree_lines(store.tree(), lambda model: model_line(store.info(model))):
        say(line)


@model.command()
@click.argument("a")
@click.argument("b")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of names.")
def diff(a: str, b: str, root: str | None, as_json: bool) -> None:
    """Show the layers in which models A and B differ, by their trees of hashes; no weight is read."""
    from modyn_dagster.reporting.model_tables import difference_table

    store = open_store(root)
    one, other = (store.info(chosen_model(store, text)) for text in (a, b))
    names = store.diff(one.id, other.id)
    if as_json:
        click.echo(json.dumps(list(names)))
        return
    show_table(difference_table(one, other, names).rich())


@model.command()
@click.argument("pipeline")
@click.option("--at", "moment", type=Moment(), help="Time in ISO 8601, in UTC unless it names a time zone; default: now.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def live(pipeline: str, moment: datetime | None, as_json: bool) -> None:
    """Name the live model of PIPELINE at a moment.

    It is the newest one that its live runs had trained by then, or where the spec says so the champion of then.
    """
    from modyn_dagster.catalog.results.models import find_model
    from modyn_dagster.catalog.results.promotions import live_at
    from modyn_dagster.catalog.triggers import partition_key

    at = datetime.now(UTC) if moment is None else moment
    with closing(open_platform()) as platform, platform.transaction() as conn:
        found = live_at(conn, platform.pipeline(pipeline).name, at)
        row = None if found is None else find_model(conn, found[0])
    if found is None or row is None:
        rule = "only live runs count (`pipeline show` lists their models), and a model is live once it is trained"
        raise RunError(f"{pipeline} had no live model at {utc(at)} UTC; {rule}")
    content = {
        "model": row.hash,
        "trigger": partition_key(row.run_id, row.ordinal),
        "live_from": found[1].astimezone(UTC).isoformat(),
    }
    if as_json:
        click.echo(json.dumps(content))
    else:
        say("\n".join(f"{name}: {value}" for name, value in content.items()))


@model.command()
@store_option
def gc(root: str | None) -> None:
    """Remove files of killed writers, and documents that no model refers to; models stay."""
    store = open_store(root)
    with progress_bar("gc") as progress:
        removed = store.gc(progress=progress)
    for path in removed:
        say(str(path))
    say(f"{len(removed)} files removed")
