"""User code by import path ``package.module:function``. Nothing else is ever executed."""

import importlib
from collections.abc import Callable
from typing import Any

from modyn_dagster.errors import ImportPathError


def import_callable(path: str, *, source: str, field: str) -> Callable[..., Any]:
    """The callable a spec names. ``source`` and ``field`` say in which spec, for the error.

    Raises ``ImportPathError`` when the module fails to import, lacks the name, or the name is not callable.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ImportPathError(source, field, path, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ImportPathError(source, field, path, f"names a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]  # just seen to be callable
