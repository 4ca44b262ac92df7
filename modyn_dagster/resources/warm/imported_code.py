"""Code that a warm process has imported: what it imports in advance, and whether its files have changed since."""

import contextlib
import importlib
import pkgutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PACKAGE: Final = "modyn_dagster"
#: Libraries that runs import sooner or later, the parts that others import at their first use included.
_LIBRARIES: Final = (
    "torch",
    # By the first optimizer, with half a second of its own.
    "torch._dynamo",
    "matplotlib.figure",
    "mlflow",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "pandas",
    "psycopg2",
    "dagster_postgres",
)
#: Modules of the package that no run imports, or that do something when they are imported, such as reading the project.
_LEFT_OUT: Final = tuple(
    f"{_PACKAGE}.{name}" for name in ("catalog.migrations", "cli", "component", "definitions", "resources.warm.zygote")
)


def import_everything() -> None:
    """Import the libraries and the modules of the package; one whose extra is not installed is left out."""
    folder = Path(__file__).parents[2]
    for name in (*_LIBRARIES, *_modules(folder, _PACKAGE)):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from modyn_dagster.training.inputs.device import fabric_class

    fabric_class()


def _modules(folder: Path, package: str) -> Iterator[str]:
    """Names of the modules in a folder and in those below it, none of which is imported."""
    for found in pkgutil.iter_modules([str(folder)], f"{package}."):
        if found.name in _LEFT_OUT:
            continue
        yield found.name
        if found.ispkg:
            yield from _modules(folder / found.name.rpartition(".")[2], found.name)


class ImportedCode:
    """Files of the modules of this process, with size and time of change."""

    def __init__(self) -> None:
        self._begin = time.time_ns()
        self._files: dict[str, tuple[int, int] | None] = {}
        self._written_meanwhile: str | None = None

    def note(self) -> None:
        """Note the files of everything imported since this object was made."""
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._files = {path: _state_of(path) for path in sorted(filter(None, paths))}
        now = time.time_ns()
        # What was written meanwhile may have been imported before.
        written = (path for path, state in self._files.items() if state and self._begin < state[0] <= now)
        self._written_meanwhile = next(written, None)

    def changed(self) -> str | None:
        """Find a file that may not be as it was when it was imported; None if all are."""
        changed = (path for path, state in self._files.items() if _state_of(path) != state)
        return self._written_meanwhile or next(changed, None)


def _state_of(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
