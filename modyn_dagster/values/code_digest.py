"""Digest of the loaded code behind a callable: a name for the behaviour of user code."""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from inspect import unwrap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from modyn_dagster.values.digest import frame

_BYTES: Final = 8
_PLAIN: Final = (int, float, complex, str, bytes, type(None), type(Ellipsis))


def code_digest(function: Callable[..., Any]) -> str:
    """16 hexadecimal digits of the code of a callable and of everything it uses from its own top-level package.

    Functions, classes, constants and modules count, anywhere in the package, if the code names them. Names that are
    computed at run time (``getattr``, a relative import inside a function) are not followed. For other packages, the name
    and ``__version__`` count. A hashable callable is digested once per process, so its state does not change the digest.

    Examples:
        >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 2)
        False
    """
    return _cached_digest(function) if isinstance(function, Hashable) else _digest(function)


def _digest(function: Callable[..., Any]) -> str:
    walk = _Walk(_package_of(function))
    walk.value(function)
    return walk.digest.hexdigest()


_cached_digest = lru_cache(maxsize=256)(_digest)


class _Walk:
    """Traversal of the objects that a callable is made of; every object is visited once."""

    def __init__(self, package: str) -> None:
        self.digest = blake2b(digest_size=_BYTES)
        self._package = package
        self._order: dict[int, int] = {}
        # Keeps visited objects alive, so that no two have the same id.
        self._visited: list[object] = []

    def value(self, value: object) -> None:
        """Add an object that code can name."""
        if isinstance(value, _PLAIN):
            self._add(type(value).__name__, repr(value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif id(value) in self._order:
            self._add("again", str(self._order[id(value)]))
        else:
            self._order[id(value)] = len(self._visited)
            self._visited.append(value)
            self._new(value)

    def _new(self, value: object) -> None:
        match value:
            case np.ndarray():
                self._add("array", f"{value.dtype} {value.shape}", np.ascontiguousarray(value).tobytes().hex())
            case tuple() | list():
                self._all(type(value).__name__, value)
            case set() | frozenset():
                self._all("set", sorted(value, key=repr))
            case dict():
                self._all("dict", (part for item in value.items() for part in item))
            case MethodType():
                self._all("method", (value.__func__, value.__self__))
            case partial():
                self._all("partial", (value.func, value.args, value.keywords))
            case _ if _package_of(value) != self._package:
                self._foreign(value)
            case FunctionType():
                self._function(value)
            case type():
                self._all(f"class {value.__qualname__}", (*value.__bases__, _members(value)))
            case ModuleType():
                self._add("module", value.__name__)
            case _ if hasattr(value, "__qualname__"):
                # Compiled code cannot be inspected.
                self._foreign(value)
            case _:
                self._all("object", (type(value), getattr(value, "__dict__", {})))

    def _function(self, function: FunctionType) -> None:
        self._all("function", (function.__code__, function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            self.value(cell.cell_contents)
        if (inner := unwrap(function)) is not function:
            self.value(inner)
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                self._named(name, function.__globals__[name], names)
            elif name in sys.modules:
                self._named(name, sys.modules[name], names)

    def _named(self, name: str, value: object, names: Iterable[str]) -> None:
        self._add("name", name)
        self.value(value)
        if isinstance(value, ModuleType) and _package_of(value) == self._package:
            members = {inner: vars(value)[inner] for inner in names if inner in vars(value)}
            for inner, member in members.items():
                if member is not value:
                    self._add("member", inner)
                    # A module in a module, as in ``package.module.function``.
                    remaining = [other for other in names if other not in (name, inner)]
                    self._named(inner, member, remaining) if isinstance(member, ModuleType) else self.value(member)

    def _foreign(self, value: object) -> None:
        package = _package_of(value)
        version = getattr(sys.modules.get(package), "__version__", "")
        self._add("foreign", package, str(version), getattr(value, "__qualname__", type(value).__qualname__))

    def _code(self, code: CodeType) -> None:
        # Line numbers and file names are left out: they change without a change of behaviour.
        self._add("code", code.co_code.hex(), code.co_exceptiontable.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        self._all("constants", code.co_consts)

    def _all(self, kind: str, values: Iterable[object]) -> None:
        self._add(kind)
        for value in values:
            self.value(value)
        self._add("end")

    def _add(self, *texts: str) -> None:
        for text in texts:
            self.digest.update(frame(text.encode()))


def _package_of(value: object) -> str:
    """Top-level package of a module, function, class or object."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or type(value).__module__
    return str(name).partition(".")[0]


def _names(code: CodeType) -> Iterator[str]:
    """All names looked up by a code object or by one nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _members(cls: type) -> Mapping[str, object]:
    """Members that a class defines itself, without those Python adds and those that tell its location."""
    ignored = ("__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__qualname__")
    members = {name: value for name, value in vars(cls).items() if name not in ignored}
    return {name: getattr(value, "__func__", getattr(value, "fget", value)) for name, value in members.items()}
