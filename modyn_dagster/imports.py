"""Import paths ``package.module:function`` of user code: find a module without running it, and import a callable."""

import importlib
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modyn_dagster.errors import ImportPathError


def add_code_folder(project: Path) -> None:
    """Make modules in a project's folder ``code`` importable; installed packages take precedence."""
    folder = str((project / "code").resolve())
    if folder not in sys.path and Path(folder).is_dir():
        sys.path.append(folder)


def import_callable(path: str, *, source: str, field: str) -> Callable[..., Any]:
    """Import the callable that a spec names.

    Args:
        path: ``package.module:function``.
        source: file or object that names it, for the error.
        field: dotted path inside ``source``.

    Raises:
        ImportPathError: the module fails to import or lacks the name, or the name is not callable.
    """
    module, _, name = path.partition(":")
    try:
        imported = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ImportPathError(source, field, path, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(imported):
        raise ImportPathError(source, field, path, f"names a {type(imported).__name__}, which cannot be called")
    return imported  # type: ignore[no-any-return]  # just tested to be callable


def module_exists(module: str) -> bool:
    """Test that a dotted module can be found, without running any of its packages."""
    return module in sys.modules or find_module(module) is not None


def find_module(module: str) -> importlib.machinery.ModuleSpec | None:
    """Find a dotted module without running any of its packages; None if there is none."""
    search: list[str] | None = None
    spec: importlib.machinery.ModuleSpec | None = None
    parts = module.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None and search is None:
            spec = importlib.machinery.BuiltinImporter.find_spec(name)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or [])
    return spec
