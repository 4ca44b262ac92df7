"""The command line: ``modyn-dagster <command>``.

A command's module is imported when the command runs, so ``--help`` and small commands start at once.
"""

import importlib
import traceback
from collections.abc import Mapping
from typing import IO, Any, Final, NamedTuple

import click

from modyn_dagster import __version__
from modyn_dagster.errors import ModelsMissing, ModynError, is_transient, one_line

#: Exit code of a replay that went on without the models of failed triggers.
INCOMPLETE: Final = 3
INTERRUPTED: Final = 130


class LazyCommand(NamedTuple):
    """Module and name of a command, and the line that ``--help`` shows for it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "init": LazyCommand("modyn_dagster.cli.init.command", "init", "Make a new project, from a file of yours or a template."),
    "demo": LazyCommand("modyn_dagster.cli.demo", "demo", "Replay three pipelines over a real stream and compare them."),
    "up": LazyCommand("modyn_dagster.cli.ui.command", "up", "Start all that a project folder needs; stop it with Ctrl-C."),
    "ui": LazyCommand("modyn_dagster.cli.ui.command", "ui", "Start Postgres, Dagster and MLflow; stop them with Ctrl-C."),
    "services": LazyCommand("modyn_dagster.cli.services.command", "services", "Run one server in the foreground; its health."),
    "dataset": LazyCommand("modyn_dagster.cli.dataset.batches", "dataset", "Import, inspect and repair batches, delete samples."),
    "pipeline": LazyCommand("modyn_dagster.cli.pipeline.replay", "pipeline", "Replay, inspect, operate and compare pipelines."),
    "model": LazyCommand("modyn_dagster.cli.model.store", "model", "List, compare, verify, export and probe stored models."),
    "verify": LazyCommand("modyn_dagster.cli.verify", "verify", "Read everything that is recorded, and name what is damaged."),
    "repair": LazyCommand("modyn_dagster.cli.verify", "repair", "Make damaged and missing files again where they are derived."),
    "cluster": LazyCommand("modyn_dagster.cli.cluster.check", "cluster", "Compare the nodes of a Ray cluster."),
    "disk": LazyCommand("modyn_dagster.cli.disk", "disk", "Show what takes space on the disk."),
    "check": LazyCommand("modyn_dagster.cli.check", "check", "Validate every spec and import the user code they name."),
    "schema": LazyCommand("modyn_dagster.cli.schema", "schema", "Write the JSON Schemas of the specs, for editors."),
    "db": LazyCommand("modyn_dagster.cli.db", "db", "Start, stop and upgrade the database."),
}


class FailedCommand(click.ClickException):
    """Error that shows one sentence, and ends with exit code 1, or 3 for a replay without the models of failed triggers."""

    def __init__(self, message: str, error: Exception) -> None:
        super().__init__(message)
        setattr(self, "exit_code", INCOMPLETE if isinstance(error, ModelsMissing) else 1)  # noqa: B010 - click reads it so

    def show(self, file: IO[Any] | None = None) -> None:
        """Write ``error: …`` to standard error."""
        from modyn_dagster.cli.console import say

        if file is None:
            say(f"error: {self.format_message()}", err=True)
        else:
            click.echo(f"error: {self.format_message()}", file=file)


class LazyGroup(click.Group):
    """Group that imports commands on use and shows errors as sentences instead of tracebacks."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands in the order ``--help`` shows them."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        from modyn_dagster.imports import loading

        with loading():
            command: click.Command = getattr(importlib.import_module(lazy.module), lazy.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit codes: 1 an error, 2 wrong usage, 3 a replay without some models, 130 Ctrl-C."""
        from modyn_dagster.private_files import keep_files_private

        keep_files_private()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            # A closed pipe and the like are left to click.
            if isinstance(error, BrokenPipeError) and error.filename is None:
                raise
            if ctx.params["traceback"]:
                click.echo("".join(traceback.format_exception(error)), nl=False, err=True)
            raise FailedCommand(_sentence(error), error) from error


def _sentence(error: Exception) -> str:
    """One sentence about an error that ends a command."""
    from modyn_dagster.imports import missing_package

    error = missing_package(error, "this command") or error
    if isinstance(error, ModynError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if is_transient(error):
        return f"{one_line(error)}; run the command again when that has passed (--traceback shows where it was met)"
    return (
        f"{one_line(error)}; modyn-dagster does not foresee this error: "
        "`modyn-dagster --traceback ...` shows where it comes from, please report it"
    )


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="modyn-dagster")
@click.option(
    "--traceback", is_flag=True, envvar="MODYN_TRACEBACK", show_envvar=True, help="Show the Python traceback of an error."
)
def main(traceback: bool) -> None:
    """Data-centric continuous training on Dagster.

    Works on the project in the current folder: datasets/*.yaml and pipelines/*.yaml. MODYN_PROJECT names another
    folder, MODYN_HOME the folder of all state (default: .modyn), MODYN_POSTGRES_URL a server to use instead of the
    embedded one. Files are written for this account alone.
    """
