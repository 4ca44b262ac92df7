"""The stream of this project: messages to a help desk, a CSV file of 50 messages per day, 60 days.

``python make_data.py`` writes it to ``data`` beside this script. All texts are drawn from one seed per day. From ``CHANGE`` on
people write about an app, in words that no model of before has read.
"""

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

BEGIN: Final = datetime(2025, 1, 6)
DAYS: Final = 60
MESSAGES_PER_DAY: Final = 50
CHANGE: Final = 30

OPENINGS: Final = ("Hello, my", "Good morning, the", "Please help: my", "Since yesterday the", "Again the")
SUBJECTS: Final = {
    "billing": ("invoice", "refund", "payment", "price"),
    "delivery": ("parcel", "courier", "shipment", "address"),
    "technical": ("device", "battery", "cable", "display"),
}
#: From ``CHANGE`` on.
NEW_SUBJECTS: Final = {
    "billing": ("subscription", "voucher", "wallet"),
    "delivery": ("tracking", "locker", "slot"),
    "technical": ("login", "update", "notification"),
}
ENDINGS: Final = ("is wrong", "is missing", "does not work", "came twice", "has changed, why?")


def messages_of(day: int) -> list[list[object]]:
    """Time, text and team of the messages of a day."""
    rng = np.random.default_rng([11, day])
    rows: list[list[object]] = []
    for i in range(MESSAGES_PER_DAY):
        team = list(SUBJECTS)[rng.integers(len(SUBJECTS))]
        is_new = day >= CHANGE and rng.random() < 0.7
        subjects = (NEW_SUBJECTS if is_new else SUBJECTS)[team]
        words = [
            OPENINGS[rng.integers(len(OPENINGS))],
            subjects[rng.integers(len(subjects))],
            ENDINGS[rng.integers(len(ENDINGS))],
        ]
        # Some messages reach the wrong team.
        told = team if rng.random() < 0.95 else list(SUBJECTS)[rng.integers(len(SUBJECTS))]
        rows.append([f"{BEGIN + timedelta(days=day, minutes=25 * i):%Y-%m-%dT%H:%M}", " ".join(words), told])
    return rows


def write_stream(folder: Path) -> int:
    """Write one file per day; returns the number of samples."""
    folder.mkdir(exist_ok=True)
    for day in range(DAYS):
        with open(folder / f"{BEGIN + timedelta(days=day):%Y-%m-%d}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["time", "text", "team"])
            writer.writerows(messages_of(day))
    return DAYS * MESSAGES_PER_DAY


if __name__ == "__main__":
    target = Path(__file__).parent / "data"
    sys.stdout.write(f"{write_stream(target):,} messages in {target.name}/\n")
