"""Search for pickles in the bytes of a model: loading one runs whatever it says."""

import bz2
import gzip
import io
import lzma
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from modyn_dagster.errors import ConfigError

#: First bytes of compressed files, as joblib writes them too, and what opens them.
_COMPRESSED: Final[Mapping[bytes, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"\x78\x01": zlib.decompress,
    b"\x78\x5e": zlib.decompress,
    b"\x78\x9c": zlib.decompress,
    b"\x78\xda": zlib.decompress,
}
_PROTOCOLS: Final = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))


def refuse_pickle(content: bytes, *, source: str, name: str) -> None:
    """Raise ``ConfigError`` for a model file that is a pickle, compressed or not, or an archive with one."""
    if (place := pickle_in(content)) is not None:
        rule = f"its model file is a pickle ({place}), which would run code when it is loaded; write another format"
        raise ConfigError(source, "training.model", name, rule)


def pickle_in(content: bytes) -> str | None:
    """Place of a pickle in bytes; None where there is none.

    >>> import pickle
    >>> pickle_in(pickle.dumps([1])), pickle_in(b'{"model": 1}')
    ('protocol 4', None)
    """
    if content[:2] in _PROTOCOLS:
        return f"protocol {content[1]}"
    if content.endswith(b".") and _is_old_pickle(content):
        return "protocol 0 or 1"
    for head, opened in _COMPRESSED.items():
        if content.startswith(head):
            return _within("compressed", _decompressed(opened, content))
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                if found := _within(f"member {member}", archive.read(member)):
                    return found
    return None


def _within(place: str, content: bytes) -> str | None:
    found = pickle_in(content)
    return None if found is None else f"{place}, {found}"


def _decompressed(opened: Callable[[bytes], bytes], content: bytes) -> bytes:
    try:
        return opened(content)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
        return b""


def _is_old_pickle(content: bytes) -> bool:
    """Test that the operations of a pickle, none of which is executed, fill bytes to their end."""
    try:
        *_, (operation, _, position) = pickletools.genops(content)
    except Exception:  # noqa: BLE001 - the parser raises many kinds for bytes that are no pickle
        return False
    return operation.name == "STOP" and position == len(content) - 1
