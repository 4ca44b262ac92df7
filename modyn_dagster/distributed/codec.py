"""Values on their way between processes: JSON for their structure, safetensors for arrays and bytes. No pickle.

Plain values, containers, paths, times, arrays and types are encoded as such; an instance of a class as the name of the class and
the content that ``__reduce_ex__`` gives. Decoding makes instances of installed classes without calling their constructors, and
calls no function but those with which classes of this distribution restore themselves. Classes of Python's own library, code and
open files are refused on both sides.
"""

import copyreg
import importlib
import json
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from safetensors import SafetensorError
from safetensors.numpy import load, save

_LENGTH: Final = struct.Struct("<Q")
#: Packages whose classes may restore themselves by a function of their own.
OURS: Final = ("fastpath", "modyn_dagster")
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
    except (SafetensorError, LookupError, AttributeError) as error:
        raise ValueError(f"a message of a worker is damaged: {error}") from error


def imported(module: str, name: str) -> Any:
    """Return the class or function of a module, or of a class in it."""
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


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
        if kind in _TEXTS:
            return [kind.__name__, _TEXTS[kind][0](value)]
        if isinstance(value, np.dtype):
            return ["dtype", _descr(value)]
        if kind is range:
            return ["range", value.start, value.stop, value.step]
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return ["name", *_name(value)]
        return self._instance(value)

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be sent to another process")
        array = np.ascontiguousarray(value)
        place = self._kept(array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8))
        return [
            "array" if isinstance(value, np.ndarray) else "scalar",
            _descr(value.dtype),
            list(value.shape),
            place,
        ]

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
        _require_class(kind)
        described: Any = value.__reduce_ex__(_PROTOCOL)
        if not isinstance(described, tuple) or any(part is not None for part in described[3:]):
            raise TypeError(f"a {kind.__name__} cannot be sent to another process")
        function, arguments, *rest = described
        state = self.node(rest[0]) if rest else None
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # the stub of the library leaves it out
            return ["new", *_name(arguments[0]), self.node(arguments[1:]), state]
        return ["call", *_restoring(function), self.node(tuple(arguments)), state]


#: Names of containers by their types.
_CONTAINERS: Final[Mapping[type, str]] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
#: Types with a text form: how it is made, and read.
_TEXTS: Final[Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    type(Path()): (str, Path),
    PurePath: (str, PurePath),
    datetime: (datetime.isoformat, datetime.fromisoformat),
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
        case ["array" | "scalar" as kind, descr, list(shape), str(place)]:
            array = np.empty(shape, _dtype(descr))
            if array.size:
                array.reshape(-1).view(np.uint8)[:] = arrays[place]
            return array if kind == "array" else array[()]
        case ["dtype", descr]:
            return _dtype(descr)
        case ["range", int(start), int(stop), int(step)]:
            return range(start, stop, step)
        case ["name", str(module), str(name)]:
            return imported(module, name)
        case ["own", content]:
            return _decoded(content, arrays).with_own_secrets()
        case ["new", str(module), str(name), content, state]:
            kind = imported(module, name)
            _require_class(kind)
            return _with_state(kind.__new__(kind, *_decoded(content, arrays)), _decoded(state, arrays))
        case ["call", str(module), str(name), content, state]:
            function = imported(module, name)
            _restoring(function)
            return _with_state(function(*_decoded(content, arrays)), _decoded(state, arrays))
        case [str(kind), content] if kind in _READ:
            return _READ[kind](content)
    raise ValueError("a message of a worker holds what none of ours writes")


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


def _name(value: Any) -> tuple[str, str]:
    """Module and name of a class or function; ``TypeError`` for one that cannot be imported by them."""
    module, name = str(value.__module__), str(value.__qualname__)
    if module == "__main__" or "<" in name or imported(module, name) is not value:
        raise TypeError(f"{name} cannot be sent to another process: it is not at the top of a module")
    return module, name


def _require_class(kind: Any) -> None:
    """Raise ``TypeError`` for what is no class, and for classes of Python itself: files, locks, generators, code."""
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        raise TypeError(f"a {getattr(kind, '__name__', kind)} cannot be sent to another process")


def _restoring(function: Any) -> tuple[str, str]:
    """Name of a function that restores instances: an enumeration, or a class, method or function of this distribution."""
    is_enum = isinstance(function, type) and issubclass(function, Enum)
    if isinstance(function, MethodType):
        owner = function.__self__
        module, name = _name(owner)
        name = f"{name}.{function.__name__}"
    else:
        owner = function
        module, name = _name(function)
    if not (is_enum or owner.__module__.partition(".")[0] in OURS):
        raise TypeError(f"{module}.{name} does not restore values that are sent to other processes")
    return module, name
