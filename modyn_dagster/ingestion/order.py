"""Natural order of paths: ``part_2`` before ``part_10``."""

import re
from typing import Any, Final

_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_key(path: str) -> tuple[Any, ...]:
    """Sort key: folder by folder, runs of digits as numbers; names that differ only in leading zeros are ordered as text.

    >>> sorted(["b/part_10.csv", "b/part_2.csv", "a.csv"], key=natural_key)
    ['a.csv', 'b/part_2.csv', 'b/part_10.csv']
    """
    return tuple(_name_key(name) for name in path.split("/")), path


def _name_key(name: str) -> list[Any]:
    # Text and numbers alternate, text first, so that equal places always hold the same type.
    parts = _DIGITS.split(name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
