"""Moments of the clock as people write them: ISO 8601, in UTC unless they name a time zone."""

from datetime import UTC, datetime


def parse_moment(text: str) -> datetime:
    """Parse a time in ISO 8601, and convert it to UTC. ``ValueError`` for any other text, and for a time outside the calendar.

    >>> parse_moment("2026-03-31T14:05+02:00")
    datetime.datetime(2026, 3, 31, 12, 5, tzinfo=datetime.timezone.utc)
    >>> parse_moment("2026-03-31")
    datetime.datetime(2026, 3, 31, 0, 0, tzinfo=datetime.timezone.utc)
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} is outside the calendar in UTC") from error
