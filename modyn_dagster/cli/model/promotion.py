"""``modyn-dagster model promote``, ``reject``, ``rollback`` and ``history``: champions by hand, and what was live when."""

import getpass
import json
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modyn_dagster.cli.console import Moment, say, show_table
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import ConfigError, RunError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from modyn_dagster.evaluation.promotion.state import Action
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.promotion.wishes import PlaceOfModel

Command = TypeVar("Command", bound=Callable[..., Any])

_MOMENT = "the champion at a moment of the clock: ISO 8601, in UTC unless it names a time zone."


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise ConfigError("model", "--as", "", "must name you: this system has no name for your account") from None


def _options(command: Command) -> Command:
    for option in (
        click.option("--run", "run_id", type=int, help="Run; default: the open live run."),
        click.option("--as", "actor", help="Name in the history; default: your login name."),
        click.option("--reason", default="by hand", show_default=True, help="Reason in the history."),
    ):
        command = option(command)
    return command


def _named(command: Command) -> Command:
    for option in (
        click.option("--at", "moment", type=Moment(), help=f"With a pipeline: {_MOMENT}"),
        click.option("--trigger", "ordinal", type=click.IntRange(0), help="With a pipeline: number of the model's trigger."),
        click.argument("model"),
    ):
        command = option(command)
    return command


@click.command()
@_options
@_named
def promote(model: str, **options: Any) -> None:
    """Make MODEL the champion of its pipeline, whatever its test says; with `approve: manual`, approve it.

    MODEL is an id or its first digits, the partition key of a trigger, or a pipeline with --trigger or --at. The model is
    loaded and verified before it becomes the champion.
    """
    _act_on_model("promote", model, **options)


@click.command()
@_options
@_named
def reject(model: str, **options: Any) -> None:
    """Reject MODEL, a candidate of its pipeline: its test ends, and it does not become the champion by itself.

    MODEL is an id or its first digits, the partition key of a trigger, or a pipeline with --trigger or --at.
    """
    _act_on_model("reject", model, **options)


@click.command()
@click.argument("pipeline")
@click.option("--to", "model", help="Champion before to go back to: its id, first digits, or partition key of its trigger.")
@click.option("--trigger", "ordinal", type=click.IntRange(0), help="The same by the number of its trigger.")
@click.option("--at", "moment", type=Moment(), help=f"The same by time: {_MOMENT}")
@_options
def rollback(
    pipeline: str,
    model: str | None,
    ordinal: int | None,
    moment: datetime | None,
    run_id: int | None,
    actor: str | None,
    reason: str,
) -> None:
    """Make an earlier champion of PIPELINE the champion again; default: the one before the present one.

    The earlier model is loaded and verified first; if that fails, nothing changes. Champions after it retire.
    """
    from modyn_dagster.assets.promotion.by_hand import chosen_place

    with closing(open_platform()) as platform:
        with platform.transaction() as conn:
            place = chosen_place(conn, platform, pipeline, model=model, trigger=ordinal, moment=moment, run_id=run_id)
        _carry_out(platform, "rollback", place, actor, reason)


@click.command()
@click.argument("pipeline")
@click.option("--run", "run_id", type=int, help="Run; default: the open live run, else the newest replay.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def history(pipeline: str, run_id: int | None, as_json: bool) -> None:
    """Show what was live when in PIPELINE: champions with who, why and the score then; and candidates with their tests."""
    from modyn_dagster.catalog.runs import choose_run
    from modyn_dagster.pipeline.promotion.wishes import run_to_promote
    from modyn_dagster.reporting.promotion.live_history import read_history
    from modyn_dagster.reporting.promotion.tables import candidates_table, live_table

    with closing(open_platform()) as platform, platform.transaction() as conn:
        name = platform.pipeline(pipeline).name
        run = choose_run(conn, name) if run_id is None else run_to_promote(conn, platform, name, run_id)
        if run is None:
            raise RunError(f"{name} has not run yet; launch `modyn-dagster pipeline replay {name}` or switch on its sensor")
        found = read_history(conn, run)
    if found is None:
        raise RunError(f"{run.title} promotes nothing: its spec has no `promotion`")
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
        return
    show_table(live_table(found).rich())
    if (candidates := candidates_table(found)) is not None:
        show_table(candidates.rich())


def _act_on_model(
    action: "Action",
    model: str,
    ordinal: int | None,
    moment: datetime | None,
    run_id: int | None,
    actor: str | None,
    reason: str,
) -> None:
    with closing(open_platform()) as platform:
        with platform.transaction() as conn:
            place = _place(conn, platform, model, ordinal, moment, run_id)
        _carry_out(platform, action, place, actor, reason)


def _place(
    conn: "sa.Connection", platform: "Platform", model: str, ordinal: int | None, moment: datetime | None, run_id: int | None
) -> "PlaceOfModel":
    from modyn_dagster.assets.promotion.by_hand import chosen_place

    if ordinal is not None or moment is not None:
        return chosen_place(conn, platform, model, trigger=ordinal, moment=moment, run_id=run_id)
    if model in platform.project.pipelines:
        raise ConfigError("model", "MODEL", model, "is a pipeline; say which of its models with --trigger or --at")
    return chosen_place(conn, platform, None, model=model, run_id=run_id)


def _carry_out(platform: "Platform", action: "Action", place: "PlaceOfModel", actor: str | None, reason: str) -> None:
    from modyn_dagster.assets.promotion.by_hand import decide_by_hand
    from modyn_dagster.resources.mlflow import MlflowResource

    done = decide_by_hand(platform, MlflowResource(), action, place, actor if actor is not None else _login_name(), reason)
    for sentence in done.sentences:
        say(sentence)
    champion = (done.run.champion_model or "")[:12]
    say(f"The champion of {done.run.title} is {champion}; see `modyn-dagster model history {done.run.pipeline}`.")
