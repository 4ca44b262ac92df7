"""Tables of a user as CSV text: by default a time, a number and a label in each of sixty rows."""

from typing import Any

N = 60
DAYS = [f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}" for i in range(N)]


def table(columns: dict[str, list[Any]]) -> str:
    """CSV of some columns."""
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    quoted = [['"' + str(cell).replace('"', '""') + '"' for cell in row] for row in rows]
    return "".join(",".join(row) + "\n" for row in quoted)


def plain(**columns: list[Any]) -> str:
    return table({"time": DAYS, "x": list(range(N)), "label": [i % 2 for i in range(N)], **columns})
