"""The stream of this project: views of products in a shop, a Parquet file of 80 views per day, 60 days.

``python make_data.py`` writes it to ``data`` beside this script. All numbers are drawn from one seed per day. Each group of
visitors likes some products; from ``CHANGE`` on the groups like others.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGIN: Final = datetime(2025, 1, 6)
DAYS: Final = 60
VIEWS_PER_DAY: Final = 80
CHANGE: Final = 30
GROUPS: Final = 6
PRODUCTS: Final = 12


def views_of(day: int) -> pa.Table:
    """Time, number, visitor group, product, hour, price, seconds and click of the views of a day."""
    rng = np.random.default_rng([13, day])
    n = VIEWS_PER_DAY
    group, product = rng.integers(0, GROUPS, n), rng.integers(0, PRODUCTS, n)
    minutes = np.sort(rng.integers(0, 24 * 60, n))
    price, seconds = rng.gamma(2, 10, n).round(2), rng.exponential(20, n).round(1)
    likes = (product + group * (1 if day < CHANGE else 5)) % 3 == 0
    logit = 3.0 * likes - 0.04 * price + 0.02 * seconds - 1.0
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    return pa.table(
        {
            "time": np.datetime64(BEGIN + timedelta(days=day), "us") + minutes.astype("timedelta64[m]"),
            "view": day * n + np.arange(n),
            "visitor_group": group,
            "product": product,
            "hour": minutes // 60,
            "price": price,
            "seconds": seconds,
            "clicked": clicked.astype(np.int64),
        }
    )


def write_stream(folder: Path) -> int:
    """Write one file per day; returns the number of samples."""
    folder.mkdir(exist_ok=True)
    for day in range(DAYS):
        pq.write_table(views_of(day), folder / f"{BEGIN + timedelta(days=day):%Y-%m-%d}.parquet")
    return DAYS * VIEWS_PER_DAY


if __name__ == "__main__":
    target = Path(__file__).parent / "data"
    sys.stdout.write(f"{write_stream(target):,} views in {target.name}/\n")
