"""Made-up batches: a stream of two classes that drifts, and a stream of numbers to regress.

Only uniform draws, sums and products are used, so that the files have the same bytes on every machine.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

#: Batches of a dataset, one per day.
DAYS: Final = 10
_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)
_ROWS: Final = {"stream": 120, "levels": 60}
_COUNTRIES: Final = ("CH", "DE", "IT")


def write_batches(folder: Path, days: range) -> None:
    """Write the files of these days into ``<folder>/stream`` and ``<folder>/levels``."""
    for name, text_of in (("stream/day_{:02d}.csv", _stream), ("levels/day_{:02d}.jsonl", _levels)):
        for day in days:
            path = folder / name.format(day)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(day))


def _stream(day: int) -> str:
    """Rows of two classes: the line between them turns on days 4 and 7, and the points move with the days."""
    n = _ROWS["stream"]
    rng = np.random.default_rng([1, day])
    points = _bell(rng, (n, 3)) + np.array([0.1 * day, 0.0, 0.5 if day >= 7 else 0.0])
    line = np.array([(1.0, 0.0, 0.2), (0.3, 1.0, 0.0), (-0.8, 0.6, 0.5)][(day >= 4) + (day >= 7)])
    labels = (points @ line + 0.4 * _bell(rng, (n,)) > 0.05 * day).astype(int)
    countries = [_COUNTRIES[int(choice)] for choice in rng.random(n) * len(_COUNTRIES)]
    importance = 0.5 + 2 * rng.random(n)
    lines = [
        f"{_time(day, row)},{x:.6f},{y:.6f},{z:.6f},{country},{weight:.4f},{label}"
        for row, ((x, y, z), country, weight, label) in enumerate(zip(points, countries, importance, labels))
    ]
    return "\n".join(["time,x,y,z,country,importance,label", *lines, ""])


def _levels(day: int) -> str:
    """Rows with a number to learn, whose slope changes on day 5."""
    n = _ROWS["levels"]
    rng = np.random.default_rng([2, day])
    points = _bell(rng, (n, 2))
    levels = points @ np.array([1.5, -0.5] if day < 5 else [-0.5, 1.0]) + 0.2 * _bell(rng, (n,)) + 0.1 * day
    rows = zip(points.round(6).tolist(), levels.round(6).tolist())
    lines = [json.dumps({"time": _time(day, row), "u": u, "v": v, "level": level}) for row, ((u, v), level) in enumerate(rows)]
    return "\n".join([*lines, ""])


def _time(day: int, row: int) -> str:
    return f"{_BEGIN + timedelta(days=day, minutes=10 * row):%Y-%m-%dT%H:%M:%SZ}"


def _bell(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Draws with mean 0 and deviation 1, nearly normal."""
    total: npt.NDArray[np.float64] = rng.random((12, *shape)).sum(axis=0)
    return total - 6.0
