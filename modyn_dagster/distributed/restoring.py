"""Classes and functions that a message between processes may name, and those that may make values of it."""

import importlib
import sys
from enum import Enum
from types import MethodType
from typing import Any, Final

#: Packages whose classes may restore themselves by a function of their own.
OURS: Final = ("fastpath", "modyn_dagster")
#: The function that restores errors of this distribution.
_OF_ERRORS: Final = ("fastpath.errors", "_restored")
#: Modules whose ``__setstate__`` gives fields to classes of others, and does nothing else.
_FIELDS_ONLY: Final = ("dataclasses", "pydantic.main")


def imported(module: str, name: str) -> Any:
    """Return the class or function of a module, or of a class in it."""
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def name_of(value: Any) -> tuple[str, str]:
    """Module and name of a class or function; ``TypeError`` for one that cannot be imported by them."""
    module, name = str(value.__module__), str(value.__qualname__)
    if module == "__main__" or "<" in name or imported(module, name) is not value:
        raise TypeError(f"{name} cannot be sent to another process: it is not at the top of a module")
    return module, name


def require_class(kind: Any) -> None:
    """Raise ``TypeError`` for what is no class, classes of Python itself (files, code), and states that are more than fields."""
    name = getattr(kind, "__name__", kind)
    if not isinstance(kind, type) or issubclass(kind, type) or _package(kind) in sys.stdlib_module_names:
        raise TypeError(f"a {name} cannot be sent to another process")
    sets_state = getattr(kind, "__setstate__", None)
    # Errors have one of the interpreter, which sets fields.
    is_foreign = sets_state is not None and sets_state is not getattr(BaseException, "__setstate__", None)
    if is_foreign and _package(kind) not in OURS and getattr(sets_state, "__module__", None) not in _FIELDS_ONLY:
        raise TypeError(f"a {name} cannot be sent to another process: it has a `__setstate__` of its own")


def restoring_name(function: Any) -> tuple[str, str]:
    """Name of what restores instances: an enumeration, a class of ours that says how or its class method, or ``_OF_ERRORS``."""
    is_method = isinstance(function, MethodType)
    owner = function.__self__ if isinstance(function, MethodType) else function
    module, name = name_of(owner)
    if is_method:
        name = f"{name}.{function.__name__}"
    is_known = not is_method and ((module, name) == _OF_ERRORS or _is_enumeration(owner))
    if not (is_known or _restores_itself(owner)):
        raise TypeError(f"{module}.{name} does not restore values that are sent to other processes")
    return module, name


def _restores_itself(owner: Any) -> bool:
    if not isinstance(owner, type) or _package(owner) not in OURS:
        return False
    return any("__reduce__" in vars(kind) for kind in owner.__mro__ if _package(kind) in OURS)


def _is_enumeration(owner: Any) -> bool:
    """Test for a class with members: one without makes classes when it is called."""
    return isinstance(owner, type) and issubclass(owner, Enum) and len(owner) > 0


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]
