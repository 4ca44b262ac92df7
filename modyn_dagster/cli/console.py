"""Terminal input and output of commands: messages, tables, and moments in ISO 8601."""

import os
import shutil
import sys
import textwrap
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from modyn_dagster.reporting.terminal import TerminalTable


def say(text: str, *, err: bool = False) -> None:
    """Print a message. In a terminal, or where COLUMNS is set, its lines break between words; in a log they do not."""
    width = _width(sys.stderr if err else sys.stdout)
    click.echo(text if width is None else "\n".join(_broken(line, width) for line in text.splitlines()), err=err)


def _width(stream: IO[str]) -> int | None:
    """Characters of a line; None for a stream that has no width of its own."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return shutil.get_terminal_size().columns if stream.isatty() else None


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
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no moment like 2026-03-31, 2026-03-31T14:05 or 2026-03-31T14:05:09.25+02:00", param, ctx)


def utc(moment: datetime) -> str:
    """Format a time in UTC, with all its digits and without the zone."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))
