"""Archives of skops with the same bytes for the same estimator, and the types that may be in them."""

import importlib
import io
import json
import zipfile
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from modyn_dagster.errors import ConfigError

_SCHEMA: Final = "schema.json"
#: Time of every member: the first one that zip archives know.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def dump_estimator(estimator: object, packages: Collection[str], *, source: str) -> bytes:
    """Archive of an estimator; ``ConfigError`` for an object that skops cannot store, or a type from elsewhere."""
    import skops.io

    try:
        content = _canonical(skops.io.dumps(estimator))
    except Exception as error:
        rule = f"cannot be stored without pickle: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model.estimator", type(estimator).__name__, rule) from error
    _trusted(content, packages, source)
    return content


def load_estimator(content: bytes, packages: Collection[str], *, source: str) -> Any:
    """Estimator of an archive, which never decides itself what it may hold.

    Args:
        content: bytes of ``dump_estimator``.
        packages: packages whose classes may be in it, beside those that skops trusts.
        source: name of the pipeline, for errors.

    Raises:
        ConfigError: the archive names another type, or is damaged.
    """
    import skops.io

    trusted = _trusted(content, packages, source)
    try:
        return skops.io.loads(content, trusted=trusted)
    except Exception as error:
        rule = f"the stored estimator cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model", "skops archive", rule) from error


def _trusted(content: bytes, packages: Collection[str], source: str) -> list[str]:
    """Names of the types in an archive that skops does not know, all of which are classes of the packages."""
    import skops.io

    try:
        names = skops.io.get_untrusted_types(data=content)
    except Exception as error:
        rule = f"is no archive of skops: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model", "skops archive", rule) from error
    strange = [name for name in names if not _is_class_of(name, packages)]
    if strange:
        rule = f"only classes of {', '.join(sorted(packages))} may be in the model, and what skops trusts; functions never"
        raise ConfigError(source, "training.model", ", ".join(strange), rule)
    return list(names)


def _is_class_of(name: str, packages: Collection[str]) -> bool:
    """Test that a dotted name is that of a class which one of the packages defines, and not only imports."""
    module, _, attribute = name.rpartition(".")
    if module.partition(".")[0] not in packages:
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return False
    return isinstance(found, type) and str(found.__module__).partition(".")[0] in packages


def _canonical(content: bytes) -> bytes:
    """Rewrite an archive without what differs between two writings: addresses of objects, times, padding, order of sets."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema = json.loads(archive.read(_SCHEMA))
        files = {name: archive.read(name) for name in archive.namelist() if name != _SCHEMA}
    numbers: dict[int, int] = {}
    names: dict[str, str] = {}
    _renumber(schema, numbers, names, files)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for old, new in names.items():
            archive.writestr(zipfile.ZipInfo(new, _EPOCH), _without_padding(files[old]))
        archive.writestr(zipfile.ZipInfo(_SCHEMA, _EPOCH), json.dumps(schema, separators=(",", ":")))
    return written.getvalue()


def _renumber(node: Any, numbers: dict[int, int], names: dict[str, str], files: Collection[str]) -> None:
    """Number objects and files by their first place in the schema; plain values, which Python may share or not, lose theirs."""
    if isinstance(node, list):
        for part in node:
            _renumber(part, numbers, names, files)
    if not isinstance(node, dict):
        return
    loader, address, file = node.get("__loader__"), node.get("__id__"), node.get("file")
    if loader == "JsonNode":
        node.pop("__id__", None)
    elif isinstance(address, int):
        node["__id__"] = numbers.setdefault(address, len(numbers) + 1)
    if loader == "SetNode":
        node["content"].sort(key=_without_addresses)
    if isinstance(file, str) and file in files:
        node["file"] = names.setdefault(file, f"{len(names) + 1}.{file.rpartition('.')[2]}")
    for part in node.values():
        _renumber(part, numbers, names, files)


def _without_addresses(node: Any) -> str:
    def stripped(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: stripped(value) for name, value in part.items() if name != "__id__"}
        return [stripped(each) for each in part] if isinstance(part, list) else part

    return json.dumps(stripped(node), sort_keys=True)


def _without_padding(file: bytes) -> bytes:
    """An array's file with zeros between the fields of its rows, where memory is left as it was; other files unchanged."""
    if not file.startswith(b"\x93NUMPY"):
        return file
    array = np.load(io.BytesIO(file), allow_pickle=False)
    if array.dtype.fields is None or array.size == 0:
        return file
    gaps = np.ones(array.dtype.itemsize, bool)
    for dtype, offset, *_ in array.dtype.fields.values():
        gaps[offset : offset + dtype.itemsize] = False
    content = np.frombuffer(bytearray(file), np.uint8)
    content[-array.nbytes :].reshape(array.size, array.dtype.itemsize)[:, gaps] = 0
    return content.tobytes()
