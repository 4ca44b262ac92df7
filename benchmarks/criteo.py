"""Rows like Criteo's of any size: 13 numbers, 26 categories with heavy tails, and a click that depends on them.

``python benchmarks/criteo.py FOLDER --rows 3000000 --seed 1`` writes fixed rows of 160 bytes to
``FOLDER/data/day_<date>.bin``, 180,000 in a file as in the paper, and ``FOLDER/datasets/criteo.yaml``, so that
``modyn-dagster dataset import criteo`` ingests them. The same seed gives the same bytes, however many files are asked for;
memory does not grow with the number of rows.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import yaml

from benchmarks.rows import N_CATEGORICAL, N_NUMERIC, ROW, ROWS_PER_FILE, Rows

#: Distinct values of the categorical columns: a few small ones, most in the thousands, some large, as Criteo has.
CARDINALITIES: Final = (3, 4, 10, 14, 24, 36, 60, 105, 305, 583, 633, 1_400, 1_450, 2_170, 3_190, 5_460, 5_650, 7_100, 8_400)
CARDINALITIES_LARGE: Final = (12_500, 14_900, 38_900, 93_100, 142_000, 200_000, 250_000)
SIZES: Final = np.array(CARDINALITIES + CARDINALITIES_LARGE)

#: Rows made at once; fixed, because the random stream of a block depends on it.
BLOCK: Final = 20_000
#: Effects that the categories of a column share, and the log odds of a click where all effects are zero.
_EFFECTS: Final = 64
_LOG_ODDS: Final = -1.0
_FIRST_DAY: Final = date(2024, 1, 1)


def blocks(n: int, seed: int) -> Iterator[Rows]:
    """``n`` rows in blocks of up to ``BLOCK``; block i depends on seed and i alone, a shorter one is a prefix of the whole."""
    weights, effects = _truth(seed)
    for number, start in enumerate(range(0, n, BLOCK)):
        yield _block(np.random.default_rng([seed, number]), weights, effects)[: n - start]


def write_files(folder: Path, n: int, *, seed: int, rows_per_file: int = ROWS_PER_FILE) -> list[Path]:
    """Write ``n`` rows into files of up to ``rows_per_file``; returns their paths in order of time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for rows in _cut(blocks(n, seed), rows_per_file):
        path = folder / file_name(len(paths))
        with open(path, "wb") as out:
            for part in rows:
                part.tofile(out)
        paths.append(path)
    return paths


def write_dataset(project: Path, name: str = "criteo") -> Path:
    """Write ``datasets/<name>.yaml``, which says how to ingest the files in ``data/``; returns its path."""
    path = project / "datasets" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dataset(name), sort_keys=False), encoding="utf-8")
    return path


def dataset(name: str = "criteo") -> dict[str, Any]:
    """The dataset as ``modyn_dagster.spec.dataset.DatasetSpec`` reads it."""
    return {
        "name": name,
        "description": "Rows like Criteo's, made by benchmarks/criteo.py.",
        "root": "../data",
        "format": {"kind": "fixed_rows", "dtype": [["label", "<i4"], ["num", "(13,)<f4"], ["cat", "(26,)<i4"]]},
        "batches": {"kind": "file", "pattern": "day_*.bin"},
        "time": {"source": "file_name", "pattern": r"day_(?P<time>\d{8})\.bin", "format": "%Y%m%d"},
        "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
    }


def file_name(number: int) -> str:
    """A file a day, from 1 January 2024 on."""
    return f"day_{_FIRST_DAY + timedelta(days=number):%Y%m%d}.bin"


def _truth(seed: int) -> tuple[Any, Any]:
    """What clicks depend on: a weight for each number, and effects that the categories of a column share."""
    rng = np.random.default_rng([seed, 2**31])
    return rng.normal(0, 0.2, N_NUMERIC).astype(np.float32), rng.normal(0, 0.35, (N_CATEGORICAL, _EFFECTS)).astype(np.float32)


def _block(rng: np.random.Generator, weights: Any, effects: Any) -> Rows:
    rows = np.empty(BLOCK, ROW)
    # Counts with long tails, as logarithms: what models are fed with Criteo's numbers.
    numbers = np.log1p(rng.lognormal(1.0, 1.5, (BLOCK, N_NUMERIC))).astype(np.float32)
    # Log-uniform: category c has a probability of about 1 / (c + 1).
    draws = rng.random((BLOCK, N_CATEGORICAL), dtype=np.float32)
    categories = np.minimum(np.exp(draws * np.log(SIZES + 1).astype(np.float32)).astype(np.int32) - 1, SIZES - 1)
    score = (numbers - numbers.mean(axis=0)) @ weights
    score += effects[np.arange(N_CATEGORICAL), categories % _EFFECTS].sum(axis=1) * 0.5
    rows["num"], rows["cat"] = numbers, categories
    rows["label"] = rng.random(BLOCK) < 1 / (1 + np.exp(-_LOG_ODDS - score))
    return rows


def _cut(parts: Iterator[Rows], size: int) -> Iterator[list[Rows]]:
    """Parts joined and cut into groups of ``size`` rows; the last may be shorter."""
    group: list[Rows] = []
    room = size
    for part in parts:
        rest = part
        while len(rest):
            group.append(rest[:room])
            room -= len(group[-1])
            rest = rest[len(group[-1]) :]
            if room == 0:
                yield group
                group, room = [], size
    if group:
        yield group


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write rows like Criteo's and the dataset's YAML.")
    parser.add_argument("folder", type=Path, help="gets data/ and datasets/criteo.yaml")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rows-per-file", type=int, default=ROWS_PER_FILE)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    paths = write_files(options.folder / "data", options.rows, seed=options.seed, rows_per_file=options.rows_per_file)
    print(f"{options.rows} rows in {len(paths)} files below {options.folder / 'data'}; {write_dataset(options.folder)}")


if __name__ == "__main__":
    main()
