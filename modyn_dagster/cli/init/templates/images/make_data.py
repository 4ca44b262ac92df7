"""The stream of this project: small pictures of shapes, a folder of 48 PNG files per day, 42 days.

``python make_data.py`` writes it to ``data`` beside this script: ``data/<day>/<shape>/<time>_<number>.png``. All pictures are
drawn from one seed per day. Until ``CHANGE`` they are dark shapes on a bright ground, from then on it is night.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

BEGIN: Final = datetime(2025, 1, 6)
DAYS: Final = 42
PICTURES_PER_DAY: Final = 48
CHANGE: Final = 21
SHAPES: Final = ("circle", "cross", "square")
SIDE: Final = 16


def picture_of(shape: str, rng: np.random.Generator, *, at_night: bool) -> npt.NDArray[np.uint8]:
    """Draw a shape of random size and place, ``uint8[16, 16]``."""
    radius, (x, y) = rng.uniform(3, 5), rng.uniform(6, 10, 2)
    columns, rows = np.meshgrid(np.arange(SIDE) - x, np.arange(SIDE) - y)
    is_inside: npt.NDArray[Any]
    if shape == "circle":
        is_inside = columns**2 + rows**2 < radius**2
    elif shape == "square":
        is_inside = np.maximum(abs(columns), abs(rows)) < radius * 0.8
    else:
        is_inside = (np.minimum(abs(columns), abs(rows)) < 1) & (np.maximum(abs(columns), abs(rows)) < radius)
    grey = np.where(is_inside, 60.0, 200.0) + rng.normal(0, 25, (SIDE, SIDE))
    picture: npt.NDArray[np.uint8] = np.clip(255 - grey if at_night else grey, 0, 255).astype(np.uint8)
    return picture


def write_day(folder: Path, day: int) -> None:
    """Write the pictures of a day, then the file that says that they are complete."""
    rng = np.random.default_rng([17, day])
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True, exist_ok=True)
    for i in range(PICTURES_PER_DAY):
        time = BEGIN + timedelta(days=day, minutes=30 * i)
        shape = SHAPES[rng.integers(len(SHAPES))]
        picture = Image.fromarray(picture_of(shape, rng, at_night=day >= CHANGE))
        picture.save(folder / shape / f"{time:%Y%m%dT%H%M%S}_{i}.png")
    (folder / "_READY").touch()


def write_stream(folder: Path) -> int:
    """Write one folder per day; returns the number of samples."""
    for day in range(DAYS):
        write_day(folder / f"{BEGIN + timedelta(days=day):%Y-%m-%d}", day)
    return DAYS * PICTURES_PER_DAY


if __name__ == "__main__":
    target = Path(__file__).parent / "data"
    sys.stdout.write(f"{write_stream(target):,} pictures in {target.name}/\n")
