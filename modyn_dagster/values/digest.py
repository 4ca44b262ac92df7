"""Digests of bytes, JSON values and files, and of the source text of user code and packages; all are BLAKE2b in hexadecimal."""

import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.imports import find_module
from modyn_dagster.values.json_values import canonical_json

#: Bytes of a digest, unless a shorter one was chosen for a name that people read.
DIGEST_SIZE: Final = 16
#: The hash of every checksum; ``new_hash()`` starts one that is fed piece by piece.
new_hash = partial(hashlib.blake2b, digest_size=DIGEST_SIZE)


def bytes_digest(data: bytes | memoryview, size: int = DIGEST_SIZE) -> str:
    """Digest of bytes, ``size`` bytes long.

    >>> bytes_digest(b"sample", 8)
    '1e7d7cb01fe10e0d'
    """
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def checksum_of(path: Path) -> str:
    """Digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, new_hash).hexdigest()


def json_digest(value: object) -> str:
    """Digest of a JSON value; equal for equal values, in any order of keys."""
    return bytes_digest(canonical_json(value).encode())


def frame(content: bytes) -> bytes:
    """Content behind its length, so that ``ab, c`` and ``a, bc`` feed different bytes to a hash."""
    return len(content).to_bytes(8, "little") + content


def framed_digest(parts: Iterable[bytes], *arrays: npt.NDArray[np.generic]) -> str:
    """Digest of a sequence of parts, each behind its length, then of the bytes of arrays."""
    digest = new_hash()
    for part in parts:
        digest.update(frame(part))
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def source_digest(paths: Iterable[str]) -> str:
    """Digest of the modules named by import paths ``package.module:function``; empty without paths.

    A module counts with the text of its file, or with its name alone where it has no source file. Its imports do not count.
    Nothing is imported here.
    """
    modules = sorted({path.partition(":")[0] for path in paths})
    return framed_digest(part for module in modules for part in (module.encode(), _source(module))) if modules else ""


def _source(module: str) -> bytes:
    spec = find_module(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return b""
    return Path(spec.origin).read_bytes()


@cache
def code_version(function: str) -> str | None:
    """Digest of all Python sources of the top-level package of ``package.module:function``; None where there are none.

    Nothing of the package is imported.
    """
    package = function.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = [Path(location) for location in spec.submodule_search_locations or ()]
    files = [(path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*.py")]
    if not folders and spec.origin is not None and spec.origin.endswith(".py"):
        files = [(Path(spec.origin).name, Path(spec.origin))]
    if not files:
        return None
    digest = new_hash()
    for name, path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()
