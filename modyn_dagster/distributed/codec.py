"""Values on their way between processes: JSON for their structure, safetensors for arrays and bytes. No pickle.

Plain values, containers, paths, times, arrays and types are encoded as such; an instance of a class as the name of the class and
the content that ``__reduce_ex__`` gives. Decoding makes instances of installed classes without calling their constructors. It
calls enumerations, classes of this distribution that say how they are restored, their class methods, and the one function that
restores its errors: nothing else, whatever a message names. Classes of Python's own library, code and open files are refused on
both sides, and so are classes of others with a ``__setstate__`` of their own.
"""

import copyreg
import json
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from math import prod
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from safetensors import SafetensorError
from safetensors.numpy import load, save

from modyn_dagster.distributed.restoring import imported, name_of, require_class, restoring_name

_LENGTH: Final = struct.Struct("<Q")
#: Protocol of ``__reduce_ex__`` that describes every instance by its class and its state.
_PROTOCOL: Final = 2


@runtime_checkable
class HoldsSecrets(Protocol):
    """Value with secrets that every node has by itself."""

    def without_secrets(self) -> Any:
        """Return a copy for the network of a cluster."""

    def with_own_secrets(self) -> Any:
        """Return a copy with the secrets of this node."""


def encode(value: object, *, secrets: bool = True) -> bytes:
    """Encode a value.

    Args:
        value: built of plain values, containers, paths, times, arrays, classes, functions and instances of installed classes.
        secrets: False leaves out the secrets of values that ``HoldsSecrets``; decoding finds those of the node.

    Raises:
        TypeError: a part of the value is of another kind, such as an open file, or an array of Python objects.
    """
    encoder = _Encoder(secrets=secrets)
    content = json.dumps(encoder.node(value)).encode()
    return _LENGTH.pack(len(content)) + content + save(encoder.arrays)


def decode(content: bytes) -> Any:
    """Return the value of ``encode``. ``ValueError`` for a content that it does not write."""
    view = memoryview(content)
    if len(view) < _LENGTH.size:
        raise ValueError("a message of a worker is cut short")
    (length,) = _LENGTH.unpack_from(view)
    tree = view[_LENGTH.size : _LENGTH.size + length]
    try:
        return _decoded(json.loads(bytes(tree)), load(bytes(view[_LENGTH.size + length :])))
    except (SafetensorError, LookupError, AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"a message of a worker is damaged: {error}") from error


class _Encoder:
    """Turns values into JSON, and collects their arrays."""

    def __init__(self, *, secrets: bool) -> None:
        self.arrays: dict[str, npt.NDArray[np.uint8]] = {}
        self._secrets = secrets

    def node(self, value: Any) -> Any:  # noqa: PLR0911 - a kind each
        """JSON of a value: a plain one, or a list that begins with its kind."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in _CONTAINERS:
            return [_CONTAINERS[kind], [self.node(part) for part in value]]
        if kind is dict:
            return ["dict", [[self.node(key), self.node(part)] for key, part in value.items()]]
        if kind in (bytes, bytearray):
            return ["bytes", self._kept(np.frombuffer(value, np.uint8))]
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value)
        if kind is datetime:
            return ["datetime", *_of_moment(value)]
        if kind in _TEXTS:
            return [kind.__name__, _TEXTS[kind][0](value)]
        if isinstance(value, np.dtype):
            return ["dtype", _descr(value)]
        if kind is range:
            return ["range", value.start, value.stop, value.step]
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return ["name", *name_of(value)]
        return self._instance(value)

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be sent to another process")
        if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
            raise TypeError(f"a {type(value).__name__} cannot be sent to another process: it is more than an array")
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        array = np.ascontiguousarray(value.T if by_columns else value)
        place = self._kept(array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8))
        kind = "columns" if by_columns else "array" if isinstance(value, np.ndarray) else "scalar"
        return [kind, _descr(value.dtype), list(value.shape), place]

    def _kept(self, content: npt.NDArray[np.uint8]) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = content
        return name

    def _instance(self, value: Any) -> Any:
        if not self._secrets and isinstance(value, HoldsSecrets):
            return ["own", self._reduced(value.without_secrets())]
        return self._reduced(value)

    def _reduced(self, value: Any) -> Any:
        kind = type(value)
        require_class(kind)
        described: Any = value.__reduce_ex__(_PROTOCOL)
        if not isinstance(described, tuple) or any(part is not None for part in described[3:]):
            raise TypeError(f"a {kind.__name__} cannot be sent to another process")
        function, arguments, *rest = described
        state = self.node(rest[0]) if rest else None
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # the stub of the library leaves it out
            return ["new", *name_of(arguments[0]), self.node(arguments[1:]), state]
        return ["call", *restoring_name(function), self.node(tuple(arguments)), state]


#: Names of containers by their types.
_CONTAINERS: Final[Mapping[type, str]] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
#: Types with a text form: how it is made, and read.
_TEXTS: Final[Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    type(Path()): (str, Path),
    type(PurePath()): (str, PurePath),
    date: (date.isoformat, date.fromisoformat),
    timedelta: (lambda span: [span.days, span.seconds, span.microseconds], lambda parts: timedelta(*parts)),
}
_MADE: Final[Mapping[str, Callable[[Any], Any]]] = {name: kind for kind, name in _CONTAINERS.items()}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {kind.__name__: read for kind, (_, read) in _TEXTS.items()}


def _decoded(node: Any, arrays: Mapping[str, npt.NDArray[np.uint8]]) -> Any:  # noqa: PLR0911, PLR0912 - a kind each
    match node:
        case None | bool() | int() | float() | str():
            return node
        case ["list" | "tuple" | "set" | "frozenset" as kind, list(parts)]:
            return _MADE[kind](_decoded(part, arrays) for part in parts)
        case ["dict", list(pairs)]:
            return {_decoded(key, arrays): _decoded(part, arrays) for key, part in pairs}
        case ["bytes", str(place)]:
            return arrays[place].tobytes()
        case ["array" | "scalar" | "columns" as kind, descr, list(shape), str(place)]:
            array = _filled(_dtype(descr), shape[::-1] if kind == "columns" else shape, arrays[place])
            return array.T if kind == "columns" else array if kind == "array" else array[()]
        case ["datetime", str(text), None | str() as zone, 0 | 1 as fold]:
            moment = datetime.fromisoformat(text).replace(fold=fold)
            return moment if zone is None else moment.replace(tzinfo=ZoneInfo(zone))
        case ["dtype", descr]:
            return _dtype(descr)
        case ["range", int(start), int(stop), int(step)]:
            return range(start, stop, step)
        case ["name", str(module), str(name)]:
            return imported(module, name)
        case ["own", content]:
            held = _decoded(content, arrays)
            if not isinstance(held, HoldsSecrets):
                raise TypeError(f"a {type(held).__name__} holds no secrets")
            return held.with_own_secrets()
        case ["new", str(module), str(name), content, state]:
            kind = imported(module, name)
            require_class(kind)
            return _with_state(kind.__new__(kind, *_decoded(content, arrays)), _decoded(state, arrays))
        case ["call", str(module), str(name), content, state]:
            function = imported(module, name)
            if restoring_name(function) != (module, name):
                raise TypeError(f"{module}.{name} is known under another name")
            return _with_state(function(*_decoded(content, arrays)), _decoded(state, arrays))
        case [str(kind), content] if kind in _READ:
            return _READ[kind](content)
    raise ValueError("it holds what none of ours writes")


def _filled(dtype: np.dtype[Any], shape: list[int], content: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Make an array of the bytes of its elements; nothing is allocated for another number of bytes."""
    if prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {len(content)} bytes")
    array = np.empty(shape, dtype)
    if array.size:
        array.reshape(-1).view(np.uint8)[:] = content
    return array


def _of_moment(moment: datetime) -> tuple[str, str | None, int]:
    """Text of a moment, the name of its zone where it has one, and its fold."""
    zone = moment.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key:
        return moment.replace(tzinfo=None).isoformat(), zone.key, moment.fold
    if zone is not None and type(zone) is not timezone:
        raise TypeError(f"a time in a zone of {type(zone).__name__} cannot be sent to another process")
    return moment.isoformat(), None, moment.fold


def _with_state(value: Any, state: Any) -> Any:
    """Give an instance its state, as ``copy`` does: fields, fields and slots, or what ``__setstate__`` takes."""
    if state is None:
        return value
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return value
    fields, slots = state if isinstance(state, tuple) else (state, None)
    for name, part in {**(fields or {}), **(slots or {})}.items():
        object.__setattr__(value, name, part)
    return value


def _descr(dtype: np.dtype[Any]) -> Any:
    return dtype_to_descr(dtype)  # type: ignore[no-untyped-call]  # numpy has no type for it


def _dtype(descr: Any) -> np.dtype[Any]:
    def of(part: Any) -> Any:
        return tuple(of(each) for each in part) if isinstance(part, list) else part

    if not isinstance(descr, list):
        return np.dtype(descr)
    found: np.dtype[Any] = descr_to_dtype([of(field) for field in descr])  # type: ignore[no-untyped-call]  # numpy has no type for it
    return found
