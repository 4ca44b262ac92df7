"""An expression by which a pipeline weighs its samples."""

from typing import Any

import sqlalchemy as sa


def later_hours(sample: Any) -> sa.ColumnElement[float]:
    """Three times as likely from four o'clock on."""
    return sa.case((sa.extract("hour", sample.time) >= 4, 3.0), else_=1.0)


def not_a_number(sample: Any) -> Any:
    """Values that Postgres cannot divide."""
    return sample.key / (sample.label - sample.label)
