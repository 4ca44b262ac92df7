"""Which functions a store may run: those that stand in what it allows, and are defined there.

A module that is allowed has names that come from others: ``system`` after ``from os import system``. What a file names must not
reach these.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from modyn_dagster.errors import NotAllowed
from modyn_dagster.imports import import_callable


def require_allowed(path: str, allow: Sequence[str], *, field: str = "train", doing: str = "trained again") -> None:
    """``NotAllowed`` unless ``package.module:function`` stands below a module of ``allow``, or is one of its functions."""
    if not _is_below(path, allow):
        raise NotAllowed(path, allow, field=field, doing=doing)


def allowed_callable(path: str, allow: Sequence[str], *, source: str, field: str, doing: str) -> Callable[..., Any]:
    """What an allowed path names; nothing else is imported. ``NotAllowed`` also for what is defined elsewhere."""
    require_allowed(path, allow, field=field, doing=doing)
    found = import_callable(path, source=source, field=field)
    function = found
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    defined = f"{getattr(function, '__module__', None)}:{name}"
    if not _is_below(defined, allow):
        raise NotAllowed(path, allow, field=field, doing=doing, defined=defined)
    return found


def _is_below(path: str, allow: Sequence[str]) -> bool:
    module = path.partition(":")[0]
    return any(prefix in (path, module) or module.startswith(f"{prefix}.") for prefix in allow)
