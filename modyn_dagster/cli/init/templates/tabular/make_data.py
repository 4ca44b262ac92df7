"""The stream of this project: readings of machines, a CSV file of 60 readings per day, 60 days.

``python make_data.py`` writes it to ``data`` beside this script. All numbers are drawn from one seed per day. Until ``CHANGE``
hot machines fail, from then on those that vibrate: a model of before does not know.
"""

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

BEGIN: Final = datetime(2025, 1, 6)
DAYS: Final = 60
READINGS_PER_DAY: Final = 60
CHANGE: Final = 30


def readings_of(day: int) -> list[list[object]]:
    """Time, temperature, vibration, load, age and fault of the readings of a day."""
    rng = np.random.default_rng([7, day])
    n = READINGS_PER_DAY
    temperature, vibration = rng.normal(60, 10, n).round(1), rng.gamma(2, 1.5, n).round(2)
    load, age = rng.uniform(0, 1, n).round(2), rng.integers(0, 120, n)
    cause = (temperature - 60) / 10 if day < CHANGE else vibration - 3
    faults = (cause + load + rng.normal(0, 0.5, n) > 1).astype(int)
    times = [BEGIN + timedelta(days=day, minutes=24 * i) for i in range(n)]
    columns = [values.tolist() for values in (temperature, vibration, load, age, faults)]
    return [[f"{time:%Y-%m-%dT%H:%M}", *row] for time, row in zip(times, zip(*columns, strict=True), strict=True)]


def write_stream(folder: Path) -> int:
    """Write one file per day; returns the number of samples."""
    folder.mkdir(exist_ok=True)
    for day in range(DAYS):
        with open(folder / f"{BEGIN + timedelta(days=day):%Y-%m-%d}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["time", "temperature", "vibration", "load", "age", "fault"])
            writer.writerows(readings_of(day))
    return DAYS * READINGS_PER_DAY


if __name__ == "__main__":
    target = Path(__file__).parent / "data"
    sys.stdout.write(f"{write_stream(target):,} readings in {target.name}/\n")
