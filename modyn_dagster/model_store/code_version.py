"""Which code a training runs: a hash over the sources of the package it is in."""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path


@cache
def code_version(function: str) -> str | None:
    """Hex BLAKE2b (16 bytes) of all Python sources of the top-level package of ``package.module:function``.

    Nothing of it is imported. None where there are no sources to be found.
    """
    package = function.partition(":")[0].partition(".")[0]
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    folders = [Path(place) for place in found.submodule_search_locations or ()]
    files = [(path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*.py")]
    if not folders and found.origin is not None and found.origin.endswith(".py"):
        files = [(Path(found.origin).name, Path(found.origin))]
    if not files:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for name, path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()
