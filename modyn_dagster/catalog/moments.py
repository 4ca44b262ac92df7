"""Sample times between NumPy (``datetime64[us]``, UTC) and Postgres (aware datetimes)."""

from datetime import UTC, datetime

import numpy as np


def as_timestamp(time: np.datetime64) -> datetime:
    """A sample time as Postgres takes it."""
    moment: datetime = time.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def as_datetime64(moment: datetime) -> np.datetime64:
    """A time from Postgres as samples have it, ``datetime64[us]``."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")
