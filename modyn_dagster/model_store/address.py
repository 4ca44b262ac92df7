"""Addresses of files behind fsspec, as they may be shown: without user, password and query."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

_USER: Final = re.compile(r"(?<=://)[^/]*@")
_QUERY: Final = re.compile(r"\?\S*")


class Address(PurePosixPath):
    """``scheme://host/folder/file``: joined and taken apart like a path, shown as a URL.

    >>> str(Address("memory:", "models") / "ab")
    'memory://models/ab'
    """

    def __str__(self) -> str:
        """With the two slashes that a path would make one of."""
        return re.sub(r":/(?=[^/])", "://", super().__str__())


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """A URL, or a message that may hold one, without user, password, query, and these texts.

    >>> without_secrets("sftp://ann:pass@host/models?token=1")
    'sftp://host/models'
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("", _USER.sub("", text))
