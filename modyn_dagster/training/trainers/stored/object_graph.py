"""Graphs of Python objects as JSON: for libraries without a model file of their own.

Objects are taken apart as Python's copying does (``__reduce_ex__``), and put together by classes of one library alone, and a
few of the standard library; no function that a file names is called, but what restores compiled classes. The same graph gives
the same bytes.
"""

import base64
import copyreg
import importlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from random import Random
from types import MethodType
from typing import Any, Final, cast

import numpy as np

from modyn_dagster.errors import ConfigError

#: Names of the standard library that models hold. All of them make containers and numbers.
_STANDARD: Final = frozenset(
    {
        *(f"builtins:{name}" for name in ("bool", "bytes", "complex", "dict", "float", "int", "list", "set", "str", "tuple")),
        *(f"collections:{name}" for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        "copy:deepcopy",
        "datetime:date",
        "datetime:datetime",
        "datetime:timedelta",
        "functools:partial",
        "random:Random",
    }
)
#: Functions that restore classes of Cython.
_RESTORING: Final = "__pyx_unpickle_"
_PLAIN: Final = (type(None), bool, int, float, str)


def encode(model: object, package: str, *, source: str) -> bytes:
    """JSON of an object and all that it holds; ``ConfigError`` names what cannot be stored.

    Args:
        model: the object.
        package: package whose classes and functions it may hold.
        source: name of the pipeline, for errors.
    """
    writer = _Writer(_Names(package, (), source))
    return json.dumps({"package": package, "nodes": writer.nodes_of(model)}, separators=(",", ":")).encode()


def decode(content: bytes, package: str, forbidden: Collection[str], *, source: str) -> Any:
    """Object of its JSON.

    Args:
        content: bytes of ``encode``.
        package: package whose classes and functions it may hold.
        forbidden: modules of the package that no model needs.
        source: name of the pipeline, for errors.

    Raises:
        ConfigError: the file names something else, or is damaged.
    """
    names = _Names(package, tuple(forbidden), source)
    try:
        return _Reader(json.loads(content)["nodes"], names).model()
    except ConfigError:
        raise
    except Exception as error:
        rule = f"is no model of {package}, or a damaged one: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model", "model file", rule) from error


@dataclass(frozen=True, slots=True)
class _Names:
    """Classes and functions by name, ``module:name``."""

    package: str
    forbidden: tuple[str, ...]
    source: str

    def of(self, found: Any) -> str:
        """Name of a class or function; ``ConfigError`` if a file must not name it."""
        name = f"{found.__module__}:{found.__qualname__}"
        if self.found(name) is not found:
            raise self._refusal(name)
        return name

    def found(self, name: str) -> Any:
        """Class or function of a name; ``ConfigError`` if a file must not name it."""
        module, _, attribute = name.partition(":")
        ours = module.partition(".")[0] == self.package and not self._is_forbidden(module)
        # A static method is an attribute of its class.
        parts = attribute.split(".")
        if not all(map(str.isidentifier, parts)) or not (ours or name in _STANDARD):
            raise self._refusal(name)
        found: Any = getattr(importlib.import_module(module), parts[0], None)
        for part in parts[1:]:
            found = getattr(found, part, None) if isinstance(found, type) else None
        defined = str(getattr(found, "__module__", ""))
        # A module also has the names that it imported.
        if found is None or (ours and (defined.partition(".")[0] != self.package or self._is_forbidden(defined))):
            raise self._refusal(name)
        return found

    def callable(self, name: str) -> Callable[..., Any]:
        """Class to build an object by, or what restores one of Cython."""
        found = self.found(name)
        if not (isinstance(found, type) or name.partition(":")[2].startswith(_RESTORING)):
            raise self._refusal(name)
        return found  # type: ignore[no-any-return]  # a class, or a function of Cython

    def _is_forbidden(self, module: str) -> bool:
        return any(module == each or module.startswith(f"{each}.") for each in self.forbidden)

    def _refusal(self, name: str) -> ConfigError:
        rule = f"cannot be part of a stored model: only classes and functions of {self.package} can, by their names in a module"
        return ConfigError(self.source, "training.model", name, rule)


class _Writer:
    """Numbers the objects of a graph in the order in which they are met."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._numbers: dict[int, int] = {}
        # Objects keep their addresses while they are here.
        self._objects: list[Any] = []
        # Generators that the operating system has seeded, because nobody gave their owners a `seed`.
        self._unseeded: set[int] = set()

    def nodes_of(self, model: object) -> list[Any]:
        """Describe an object, which is the first node, and all that it holds."""
        self._number(model)
        nodes: list[Any] = []
        while len(nodes) < len(self._objects):
            nodes.append(self._node(self._objects[len(nodes)]))
        return nodes

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def _value(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if type(value) is tuple:
            return {"tuple": [self._value(part) for part in value]}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, np.generic):
            return {"number": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
        if isinstance(value, type) or (hasattr(value, "__qualname__") and not isinstance(value, MethodType)):
            return {"name": self._names.of(value)}
        return {"object": self._number(value)}

    def _values(self, values: Any) -> list[Any]:
        return [self._value(value) for value in values or ()]

    def _pairs(self, pairs: Any) -> list[Any]:
        return [[self._value(key), self._value(value)] for key, value in pairs or ()]

    def _node(self, value: Any) -> dict[str, Any]:
        if id(value) in self._unseeded:
            # Any seed is as good as its own, and this one is the same in every process.
            return {"call": self._names.of(Random), "arguments": [self._number(value)]}
        if type(value) is list:
            return {"list": self._values(value)}
        if type(value) is dict:
            return {"dict": self._pairs(value.items())}
        if type(value) in (set, frozenset):
            return {type(value).__name__: self._members(value)}
        if type(value) is np.ndarray and value.dtype.kind in "biufc":
            return {"array": [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
        return self._reduced(value)

    def _members(self, value: Any) -> list[Any]:
        """Members of a set. Texts are in another order in every process; objects have no order to tell."""
        members = sorted(self._values(value), key=json.dumps)
        if any(isinstance(member, dict) and "object" in member for member in members):
            raise ConfigError(self._names.source, "training.model", type(value).__name__, "a set of objects has no order")
        return members

    def _reduced(self, value: Any) -> dict[str, Any]:
        if isinstance(value, MethodType):
            return {"method": value.__name__, "arguments": [self._value(value.__self__)]}
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            rule = f"cannot be stored: {type(error).__name__}: {error}"
            raise ConfigError(self._names.source, "training.model", type(value).__name__, rule) from error
        if isinstance(reduced, str):
            # The name of something that a module has once.
            raise ConfigError(self._names.source, "training.model", reduced, "cannot be part of a stored model")
        made, arguments, *rest = cast(tuple[Any, ...], reduced)
        state, items, pairs, *_ = [*rest, None, None, None]
        if isinstance(state, dict) and "seed" in state and state["seed"] is None:
            self._unseeded |= {id(part) for part in state.values() if type(part) is Random}
        is_new = made is copyreg.__newobj__  # type: ignore[attr-defined]  # typeshed leaves it out
        described = {"new" if is_new else "call": self._names.of(arguments[0] if is_new else made)}
        parts = {
            "arguments": self._values(arguments[1:] if is_new else arguments),
            "state": self._value(state),
            "items": self._values(items),
            "pairs": self._pairs(pairs),
        }
        return described | {name: part for name, part in parts.items() if part not in ([], None)}


class _Reader:
    """Makes objects of nodes: the arguments of a call first, then the object, then its content."""

    def __init__(self, nodes: list[dict[str, Any]], names: _Names) -> None:
        self._nodes, self._names = nodes, names
        self._made: dict[int, Any] = {}

    def model(self) -> Any:
        """The first object."""
        seen: set[int] = set()
        steps: list[tuple[str, int]] = [("meet", 0)]
        while steps:
            step, number = steps.pop()
            node = self._nodes[number]
            if step == "meet" and number not in seen:
                seen.add(number)
                steps += [("make", number), *(("meet", each) for each in _references(node.get("arguments")))]
            elif step == "make":
                self._made[number] = self._make(node)
                content = [part for name, part in node.items() if name not in ("arguments", "array")]
                steps += [("fill", number), *(("meet", each) for each in _references(content))]
            elif step == "fill":
                self._fill(self._made[number], node)
        return self._made[0]

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "tuple":
                return tuple(self._value(part) for part in content)
            case "bytes":
                return base64.b64decode(content)
            case "number":
                return np.frombuffer(base64.b64decode(content[1]), np.dtype(content[0]))[0]
            case "name":
                return self._names.found(content)
        return self._made[content]

    def _make(self, node: dict[str, Any]) -> Any:
        if "array" in node:
            dtype, shape, content = node["array"]
            return np.frombuffer(base64.b64decode(content), np.dtype(dtype)).reshape(shape).copy()
        if "frozenset" in node:
            return frozenset(self._value(member) for member in node["frozenset"])
        for kind in (list, dict, set):
            if kind.__name__ in node:
                return kind()
        arguments = [self._value(argument) for argument in node.get("arguments", ())]
        if "method" in node:
            return self._method(arguments[0], node["method"])
        if "new" in node:
            made = cast(type, self._names.callable(node["new"]))
            return made.__new__(made, *arguments)
        return self._names.callable(node["call"])(*arguments)

    def _method(self, owner: Any, name: str) -> Any:
        """Method of an object whose class a file may name."""
        method = getattr(owner, name, None)
        self._names.of(type(owner))
        if not isinstance(method, MethodType) or method.__self__ is not owner:
            raise ValueError(f"{type(owner).__name__} has no method {name!r}")
        return method

    def _fill(self, made: Any, node: dict[str, Any]) -> None:
        for value in node.get("list", node.get("items", ())):
            made.append(self._value(value))
        for key, value in node.get("dict", node.get("pairs", ())):
            made[self._value(key)] = self._value(value)
        for value in node.get("set", ()):
            made.add(self._value(value))
        if "state" in node:
            _set_state(made, self._value(node["state"]))


def _set_state(made: Any, state: Any) -> None:
    """Give an object its state, as Python's copying does."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    made.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(made, name, value)


def _references(content: Any) -> Iterator[int]:
    """Numbers of the objects in the content of a node."""
    if isinstance(content, list):
        for part in content:
            yield from _references(part)
    elif isinstance(content, dict):
        for kind, part in content.items():
            if kind == "object":
                yield part
            elif kind != "name":
                yield from _references(part)
