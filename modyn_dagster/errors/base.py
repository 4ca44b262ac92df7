"""The root of the tree, and how a text that an error may show loses its secrets."""

import re
from collections.abc import Iterable
from typing import Final

_USER: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """A URL, or a message that may hold one, without user, password, query, and these texts.

    >>> without_secrets("sftp://ann:pass@host/models?token=1")
    'sftp://host/models'
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("", _USER.sub("", text))


class ModynError(Exception):
    """Base of all errors of this package; its text says what to do."""
