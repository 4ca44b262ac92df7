"""Addresses of files behind fsspec."""

import re
from pathlib import PurePosixPath


class Address(PurePosixPath):
    """``scheme://host/folder/file``: joined and taken apart like a path, shown as a URL.

    >>> str(Address("memory:", "models") / "ab")
    'memory://models/ab'
    """

    def __str__(self) -> str:
        """With the two slashes that a path would make one of."""
        return re.sub(r":/(?=[^/])", "://", super().__str__())
