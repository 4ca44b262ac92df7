"""Classes and functions that the graph of a model's objects may name."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class ObjectNames:
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
