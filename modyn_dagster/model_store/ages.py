"""How old files behind fsspec are."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

# What file systems call the time of the last change.
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


def is_older(info: Mapping[str, Any], seconds: float) -> bool:
    """Whether a file was last changed so many seconds ago, by what its file system tells of it; not where that tells no time."""
    found = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(found, str):
        with suppress(ValueError):
            found = datetime.fromisoformat(found)
    if isinstance(found, datetime):
        found = found.timestamp()
    return isinstance(found, int | float) and time.time() - found >= seconds
