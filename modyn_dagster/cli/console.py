"""Terminal input and output of commands: messages, tables, and moments in ISO 8601."""

import shutil
import sys
import textwrap
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from modyn_dagster.values.moments import parse_moment

if TYPE_CHECKING:
    from modyn_dagster.reporting.terminal import TerminalTable


def say(text: str, *, err: bool = False) -> None:
    """Print a message. In a terminal its lines break between words, in a log they do not."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(_broken(line, width) for line in text.splitlines())
    click.echo(text, err=err)


def _broken(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    # Paths and commands are copied, so they stay in one piece.
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def show_table(table: "TerminalTable") -> None:
    """Print a table in the width of the terminal; of 80 characters where there is none and COLUMNS says nothing."""
    from rich.console import Console

    Console().print(table)


class Moment(click.ParamType):  # type: ignore[type-arg]
    """Time in ISO 8601, with microseconds if given; in UTC unless it names a time zone."""

    name = "moment"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a time and convert it to UTC; anything else is wrong usage."""
        try:
            return value if isinstance(value, datetime) else parse_moment(value)
        except ValueError:
            self.fail(f"{value!r} is no moment like 2026-03-31, 2026-03-31T14:05 or 2026-03-31T14:05:09.25+02:00", param, ctx)


def utc(moment: datetime) -> str:
    """Format a time in UTC, with all its digits and without the zone."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))
