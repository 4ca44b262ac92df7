"""Moments as people type them."""

from datetime import UTC, datetime

import click


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
