"""Generator of JPEG files of about 10 KB: smooth shapes and some grain, with a class visible in the picture.

``python benchmarks/images.py FOLDER --images 5000`` writes ``FOLDER/<class>/<number>.jpg``.
"""

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import numpy.typing as npt
from PIL import Image

WIDTH: Final = 256
HEIGHT: Final = 192
N_CLASSES: Final = 4
_QUALITY: Final = 85
#: Strength of the grain, in steps of 0 to 255: it decides the size of the files.
_GRAIN: Final = 5.0


def picture(number: int, seed: int) -> npt.NDArray[np.uint8]:
    """Picture ``number`` of a seed, ``uint8[192, 256, 3]``; its class is ``number % N_CLASSES``."""
    rng = np.random.default_rng([seed, number])
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    angle = np.pi * (number % N_CLASSES) / N_CLASSES
    waves = np.sin((np.cos(angle) * x + np.sin(angle) * y) / rng.uniform(6, 12) + rng.uniform(0, 6))
    colours = rng.uniform(40, 215, (2, 3)).astype(np.float32)
    mixed = colours[0] + (waves[..., None] + 1) / 2 * (colours[1] - colours[0])
    grain: Any = rng.normal(0, _GRAIN, (HEIGHT, WIDTH, 1)).astype(np.float32)
    pixels: npt.NDArray[np.uint8] = np.clip(mixed + grain, 0, 255).astype(np.uint8)
    return pixels


def encoded(number: int, seed: int) -> bytes:
    """The picture as a JPEG file."""
    out = io.BytesIO()
    Image.fromarray(picture(number, seed)).save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def write_images(folder: Path, n: int, *, seed: int = 1) -> list[Path]:
    """Write ``n`` files into a folder per class; returns their paths by number."""
    return list(_written(folder, n, seed))


def _written(folder: Path, n: int, seed: int) -> Iterator[Path]:
    for c in range(N_CLASSES):
        (folder / f"class_{c}").mkdir(parents=True, exist_ok=True)
    for number in range(n):
        path = folder / f"class_{number % N_CLASSES}" / f"{number:07d}.jpg"
        path.write_bytes(encoded(number, seed))
        yield path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write JPEG files of about 10 KB.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sizes = [path.stat().st_size for path in write_images(options.folder, options.images, seed=options.seed)]
    print(f"{len(sizes)} images below {options.folder}, {sum(sizes) / max(1, len(sizes)):.0f} bytes each")


if __name__ == "__main__":
    main()
