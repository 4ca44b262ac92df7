"""The text of user code, as a digest: what was computed by other code is not taken for the same."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from modyn_dagster.spec.base import find_module


def source_digest(paths: Iterable[str]) -> str:
    """Of the modules that import paths ``package.module:function`` name, 32 hexadecimal digits; empty without any path.

    Of a module the text of its file counts, or its name where it has none. What it imports does not. Nothing is imported here.
    """
    modules = sorted({path.partition(":")[0] for path in paths})
    if not modules:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for module in modules:
        for part in (module.encode(), _text(module)):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _text(module: str) -> bytes:
    found = find_module(module)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return b""
    return Path(found.origin).read_bytes()
