"""The stream of the example: flights with their delay at departure, and whether they arrived late.

``python make_data.py`` writes one CSV file per day to ``data`` beside this script, from 1 March 2025 on; ``--days N`` writes N of
them, 42 by default. All numbers are drawn from one seed per day; nothing is downloaded.

Planes make up for some of their delay on the way. Until ``WINDS`` that was more on long flights, from then on headwinds take it
away there: a model of before expects long flights to be punctual that are late now.
"""

import argparse
import csv
import io
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from modyn_dagster.storage import atomic_write

BEGIN: Final = datetime(2025, 3, 1, tzinfo=UTC)
DAYS: Final = 42
FLIGHTS_PER_DAY: Final = 50
WINDS: Final = 28
#: Minutes after the schedule from which an arrival is late.
LATE: Final = 15


def flights_of(day: int) -> list[list[object]]:
    """Departure, delay at departure in minutes, distance in kilometres, and arrival of the flights of a day."""
    rng = np.random.default_rng([2025, day])
    n = FLIGHTS_PER_DAY
    minutes = np.sort(rng.integers(5 * 60, 23 * 60, n))
    delays, distances = rng.gamma(2, 12, n).round(1), rng.uniform(200, 4000, n).round()
    made_up = distances / 100 * (1 if day < WINDS else -0.5)
    is_late = delays - made_up + rng.normal(0, 4, n) > LATE
    begin = BEGIN + timedelta(days=day)
    times = [begin + timedelta(minutes=int(each)) for each in minutes]
    arrivals = np.where(is_late, "late", "punctual").tolist()
    return [
        [f"{time:%Y-%m-%dT%H:%M}", delay, int(distance), arrival]
        for time, delay, distance, arrival in zip(times, delays.tolist(), distances.tolist(), arrivals, strict=True)
    ]


def write_stream(folder: Path, days: int = DAYS) -> int:
    """Write ``<day>.csv`` for the first days; returns the number of flights. A file that is there already is left alone."""
    for day in range(days):
        path = folder / f"{BEGIN + timedelta(days=day):%Y-%m-%d}.csv"
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([["time", "delay", "distance", "arrival"], *flights_of(day)])
        if not path.is_file():
            with atomic_write(path) as file:
                file.write(text.getvalue().encode())
    return days * FLIGHTS_PER_DAY


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the flights of the example.")
    parser.add_argument("--days", type=int, default=DAYS, help="number of days from the first one on")
    target = Path(__file__).parent / "data"
    n_flights = write_stream(target, parser.parse_args().days)
    sys.stdout.write(f"{n_flights:,} flights in {target.name}/\n")
