"""Reader of a graph of objects."""

import base64
from collections.abc import Iterator
from types import MethodType
from typing import Any, cast

import numpy as np

from modyn_dagster.training.trainers.stored.object_names import ObjectNames


class GraphReader:
    """Makes objects of nodes: the arguments of a call first, then the object, then its content."""

    def __init__(self, nodes: list[dict[str, Any]], names: ObjectNames) -> None:
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
