"""Import paths ``package.module:function`` of user code: finding a module without running it, and importing a callable."""

import importlib
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modyn_dagster.errors import ImportPathError


def add_code_folder(project: Path) -> None:
    """Let modules in a project's folder ``code`` be imported; what is installed goes before them."""
    folder = str((project / "code").resolve())
    if folder not in sys.path and Path(folder).is_dir():
        sys.path.append(folder)


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


def module_exists(module: str) -> bool:
    """Whether a dotted module can be found, without running any of its packages."""
    return module in sys.modules or find_module(module) is not None


def find_module(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where a dotted module lies; None if it cannot be found. None of its packages is run."""
    search: list[str] | None = None
    found: importlib.machinery.ModuleSpec | None = None
    for name in _prefixes(module):
        found = importlib.machinery.PathFinder.find_spec(name, search)
        if found is None and search is None:
            found = importlib.machinery.BuiltinImporter.find_spec(name)
        if found is None:
            return None
        locations = found.submodule_search_locations
        search = list(locations) if locations is not None else []
    return found


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]
