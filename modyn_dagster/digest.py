"""Digests: of files, of the loaded code behind a callable, and of the source text of user code and packages."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from hashlib import blake2b
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from modyn_dagster.imports import find_module

_CHUNK = 1 << 20


def checksum_of(path: Path) -> str:
    """Hex BLAKE2b digest (16 bytes) of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


_BYTES: Final = 8
_PLAIN: Final = (int, float, complex, str, bytes, type(None), type(Ellipsis))


def code_digest(function: Callable[..., Any]) -> str:
    """16 hexadecimal digits of the code of a callable and of all it uses of its own top-level package.

    That is functions, classes, constants and modules, wherever in the package they stand, as far as they are named in the code;
    what is only found at run time (by ``getattr`` with a computed name, or a relative import inside a function) is not seen.
    Of other packages the name and ``__version__`` count. It is taken once in a process, so what a callable remembers between
    its calls does not change it.
    """
    return _once(function) if isinstance(function, Hashable) else _digest(function)


def _digest(function: Callable[..., Any]) -> str:
    walk = _Walk(_package_of(function))
    walk.value(function)
    return walk.digest.hexdigest()


_once = lru_cache(maxsize=256)(_digest)


class _Walk:
    """Goes through what a callable is made of, each thing once."""

    def __init__(self, package: str) -> None:
        self.digest = blake2b(digest_size=_BYTES)
        self._package = package
        self._places: dict[int, int] = {}
        #: Keeps what was seen alive, so that no two things have one id.
        self._seen: list[object] = []

    def value(self, value: object) -> None:
        """Any object that code can name."""
        if isinstance(value, _PLAIN):
            self._add(type(value).__name__, repr(value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif id(value) in self._places:
            self._add("again", str(self._places[id(value)]))
        else:
            self._places[id(value)] = len(self._seen)
            self._seen.append(value)
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
                # Compiled: there is no code to look into.
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
            found = {each: vars(value)[each] for each in names if each in vars(value)}
            for inner, member in found.items():
                if member is not value:
                    self._add("member", inner)
                    # A module in a module, as in ``package.module.function``.
                    deeper = [other for other in names if other not in (name, inner)]
                    self._named(inner, member, deeper) if isinstance(member, ModuleType) else self.value(member)

    def _foreign(self, value: object) -> None:
        package = _package_of(value)
        version = getattr(sys.modules.get(package), "__version__", "")
        self._add("foreign", package, str(version), getattr(value, "__qualname__", type(value).__qualname__))

    def _code(self, code: CodeType) -> None:
        # Neither lines nor files: those move without a change of what is done.
        self._add("code", code.co_code.hex(), code.co_exceptiontable.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        self._all("constants", code.co_consts)

    def _all(self, kind: str, values: Iterable[object]) -> None:
        self._add(kind)
        for value in values:
            self.value(value)
        self._add("end")

    def _add(self, *texts: str) -> None:
        for text in texts:
            content = text.encode()
            self.digest.update(len(content).to_bytes(8, "little") + content)


def _package_of(value: object) -> str:
    """The top-level package of a module, function, class or object."""
    owner = value if isinstance(value, ModuleType) else None
    name = owner.__name__ if owner is not None else getattr(value, "__module__", None) or type(value).__module__
    return str(name).partition(".")[0]


def _names(code: CodeType) -> Iterator[str]:
    """All names that a piece of code or one inside it looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _members(cls: type) -> Mapping[str, object]:
    """What a class defines, without what Python puts there by itself and where it stands."""
    noise = ("__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__qualname__")
    members = {name: value for name, value in vars(cls).items() if name not in noise}
    return {name: getattr(value, "__func__", getattr(value, "fget", value)) for name, value in members.items()}


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
