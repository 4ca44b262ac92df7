"""``modyn-dagster init``: its options, its questions and what it says."""

import importlib
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.init.folder import new_folder, render, require_free, write_files
from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import loading

if TYPE_CHECKING:
    from modyn_dagster.cli.init.content import Columns

#: Templates with a stream of their own, and what that is.
STREAMS: Final[Mapping[str, str]] = {
    "tabular": "readings of machines",
    "images": "small pictures of shapes",
    "text": "messages to a help desk",
    "clicks": "views of products in a shop",
}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your data: a CSV, JSON lines or Parquet file, or a folder of such.",
)
@click.option("--template", type=click.Choice(list(STREAMS)), help="A small stream of this kind instead; default: tabular.")
@click.option("--time", metavar="COLUMN", help="Column with the time of a sample.")
@click.option("--time-format", metavar="FORMAT", help="How that is written, as strptime takes it: %d/%m/%Y.")
@click.option("--label", metavar="COLUMN", help="Column that models predict.")
@click.option("--label-kind", type=click.Choice(["class", "target"]), help="Whether that is a class, or a number to estimate.")
@click.option("--id", metavar="COLUMN", help="Column that names a sample, with another value in every row.")
@click.option("--no-input", is_flag=True, help="Ask nothing, also at a terminal.")
def init(name: str, file: Path | None, template: str | None, no_input: bool, **options: str | None) -> None:
    """Make a folder NAME in the current one: a project whose first replay runs at once.

    With --from the data are looked at, and time, label and id are guessed; each guess is told with its reason, and at a
    terminal it is asked about. The data stay where they are. Without --from they are a small stream that is drawn from a seed.

    The project has a dataset, two pipelines with comments, a model of your own with a test, and a Makefile. Nothing is
    overwritten: a folder that is there and not empty is an error.
    """
    require_name(name)
    target = Path.cwd() / name
    require_free(target)
    if file is not None and template is not None:
        raise click.UsageError("--from and --template exclude each other")
    if file is not None:
        project_from_data(target, file, options, ask=not no_input and sys.stdin is not None and sys.stdin.isatty())
        return
    if given := next((option for option, value in options.items() if value is not None), None):
        raise click.UsageError(f"--{given.replace('_', '-')} needs --from: a template knows its columns")
    project_from_template(target, template or "tabular")


def require_name(name: str) -> None:
    """Refuse a name that cannot be that of a folder, a dataset and a module at once. Raises ``ConfigError``."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:80]
        hint = f", such as {plain}" if _NAME.fullmatch(plain) and not keyword.iskeyword(plain) else ""
        rule = f"must be ASCII letters, digits and _, a letter first, at most 80{hint}; the folder is made in the current one"
        raise ConfigError("init", "NAME", name, rule)


def project_from_template(target: Path, template: str) -> None:
    """Make the project of a template, and say what to do next; ``target`` is a new or an empty folder."""
    values = {
        "NAME": target.name,
        "BY": "file",
        "MODEL": "which can take the place of the built-in one",
        "DATA": "| `make_data.py` | makes the data again, in `data/` |\n",
    }
    files = render(["shared", template], values)
    # A module of this package here, a script of its own in the project.
    stream = importlib.import_module(f"modyn_dagster.cli.init.templates.{template}.make_data")
    with new_folder(target) as folder:
        write_files(folder, files)
        n_samples = stream.write_stream(folder / "data")
    say(f"made {target.name}/ with {n_samples:,} samples: {STREAMS[template]}")
    _say_next(target, "file")


def project_from_data(target: Path, file: Path, options: Mapping[str, str | None], *, ask: bool) -> None:
    """Make a project of data, and say what was found and what to do next.

    Args:
        target: a new or an empty folder, whose name is that of the dataset.
        file: the data, or a folder of such.
        options: ``time``, ``time_format``, ``label``, ``label_kind`` and ``id``; None for those to guess.
        ask: ask about guesses.
    """
    with loading():
        from modyn_dagster.cli.init.content import Rhythm, project_values, require_sound
        from modyn_dagster.cli.init.look import look_at
        from modyn_dagster.cli.init.questions import Asked, choose_columns

    look = look_at(file)
    columns = choose_columns(look, target.name, Asked(**options), ask=ask)
    rhythm = Rhythm.of(look, columns.time)
    model = "tabular/code" if columns.has_rows else "text/code"
    files = render(["shared", "own", model], project_values(target, look, columns, rhythm))
    require_sound(files[f"datasets/{target.name}.yaml"], look)
    with new_folder(target) as folder:
        write_files(folder, files)
    _say_columns(columns)
    amount = f"{look.n_rows:,}" if look.is_whole else f"about {look.n_rows:,}"
    place = "1 file, which stays where it is" if look.n_files == 1 else f"{look.n_files} files, which stay where they are"
    say(f"made {target.name}/ for {amount} samples of {place}")
    _say_next(target, rhythm.by)


def _say_columns(columns: "Columns") -> None:
    time, label = columns.time, columns.label
    say(f"time: {time.column!r} ({time.reason})")
    say(f"label: {label.column!r} ({label.reason})")
    say(f"id: {columns.id_reason}" if columns.id is None else f"id: {columns.id!r} ({columns.id_reason})")
    kinds = {"columns of numbers": columns.numbers, "of texts with few values": columns.categories}
    rows = " and ".join(f"{len(names)} {kind}" for kind, names in kinds.items() if names)
    used = rows if columns.has_rows else f"the words of {len(columns.texts)} columns of text"
    left = [*(columns.texts if columns.has_rows else []), *columns.naming]
    listed = ", ".join(map(repr, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    say(f"features: {used}" + (f"; left out, as text or as names of something: {listed}" if left else ""))


def _say_next(target: Path, by: str) -> None:
    here, name = Path.cwd(), target.name
    say("next:")
    for command in (
        f"cd {target.relative_to(here) if target.is_relative_to(here) else target}",
        "modyn-dagster check --data",
        f"modyn-dagster dataset import {name}{'' if by == 'file' else f' --by {by}'}",
        "modyn-dagster pipeline replay by_amount",
        "modyn-dagster up    # Dagster and MLflow on it; `make help` lists more",
    ):
        say(f"  {command}")
