"""Writer of a graph of objects: nodes by number, in the order in which objects are met."""

import base64
import copyreg
import json
from random import Random
from types import MethodType
from typing import Any, Final, cast

import numpy as np

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.trainers.stored.object_names import ObjectNames

_PLAIN: Final = (type(None), bool, int, float, str)


class GraphWriter:
    """Numbers the objects of a graph in the order in which they are met."""

    def __init__(self, names: ObjectNames) -> None:
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
