"""Terminal input and output of commands: tables, and moments in ISO 8601."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Column, Table


def show_table(table: "Table") -> None:
    """Print a table as wide as the terminal."""
    from rich.console import Console

    Console().print(table)


def unbroken_column(title: str) -> "Column":
    """A column of what a person copies: it stays in one line while the others break."""
    from rich.table import Column

    return Column(title, no_wrap=True, overflow="fold")


class Moment(click.ParamType):  # type: ignore[type-arg]
    """ISO 8601, as exact as it is given; without a time zone it is in UTC."""

    name = "moment"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """In UTC; wrong usage for anything else."""
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no moment like 2026-03-31, 2026-03-31T14:05 or 2026-03-31T14:05:09.25+02:00", param, ctx)


def utc(moment: datetime) -> str:
    """As exact as it is, without the zone."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))
