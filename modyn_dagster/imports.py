"""Imports: of optional packages, without garbage collection, and of user code by paths ``package.module:function``.

Specs are code: whoever may write one chooses functions that our processes call. So these come from few places, and never from the
standard library, where functions start programs (``os:system``) or run text (``builtins:exec``).
"""

import atexit
import gc
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from modyn_dagster.errors import ConfigError, ImportPathError, MissingPackage

#: Optional packages that whole parts of this one need, and the extra that installs each.
EXTRA_OF: Final[Mapping[str, str]] = {
    "dagster": "dagster",
    "dagster_postgres": "dagster",
    "dagster_webserver": "dagster",
    "uvicorn": "dagster",
    "mlflow": "mlflow",
    "matplotlib": "report",
    "plotly": "report",
    "ray": "ray",
    "dagster_ray": "ray",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "transformers": "text",
    "peft": "pretrained",
    "torchvision": "vision",
    "timm": "vision",
    "alibi_detect": "drift-alibi",
    "evidently": "drift-evidently",
    "river": "drift-river",
}


def require(package: str, subject: str) -> None:
    """Make sure that an optional package can be imported, without importing it.

    Raises:
        MissingPackage: it is not installed; the message names ``subject`` and the extra.
    """
    if not is_installed(package):
        raise MissingPackage(subject, package=package, extra=EXTRA_OF[package])


def is_installed(package: str) -> bool:
    """Tell whether a top-level package can be imported, without importing it."""
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def missing_package(error: BaseException, subject: str) -> MissingPackage | None:
    """The error that says which extra to install, for an import that failed because an optional package is missing."""
    if isinstance(error, MissingPackage) or not isinstance(error, ModuleNotFoundError):
        return error if isinstance(error, MissingPackage) else None
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(package)
    return None if extra is None or is_installed(package) else MissingPackage(subject, package=package, extra=extra)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Pause garbage collection, which walks again and again over objects that all stay, as those of imported modules do."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """Load what a process needs as long as it lives: without garbage collection, and left out of later ones.

    The end of the process leaves out everything else too: it needs no memory back, and to walk over thousands of modules takes a
    second.
    """
    with collector_at_rest():
        yield
        gc.freeze()
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def add_code_folder(project: Path) -> None:
    """Make modules in a project's folder ``code`` importable; installed packages take precedence."""
    folder = str((project / "code").resolve())
    if folder not in sys.path and Path(folder).is_dir():
        sys.path.append(folder)


#: Libraries of models, losses, transforms and metrics, whose functions build or compute; without ``torch.hub``, which runs code.
LIBRARIES: Final = (
    "alibi_detect",
    "evidently",
    "modyn_dagster",
    "river",
    "sklearn",
    "torch.nn",
    "torch.optim",
    "torchmetrics",
    "torchvision.models",
    "torchvision.transforms",
    "transformers",
)
#: Rule about a path into the standard library.
STANDARD: Final = "belongs to the standard library; call it in a function of your own, in the project's folder code/"
#: Groups of entry points by which an installed package offers code to specs begin like this.
ENTRY_POINTS: Final = "modyn_dagster."


@dataclass(frozen=True, slots=True)
class CodeSources:
    """Origins of a project's user code: its folder ``code``, packages that `project.yaml` names, entry points and libraries."""

    folder: Path
    packages: frozenset[str] = frozenset()

    def refusal(self, module: str) -> str | None:
        """Say why specs of the project may not name an existing module; None if they may."""
        package = module.partition(".")[0]
        if any(module == library or module.startswith(f"{library}.") for library in LIBRARIES):
            return None
        if package in self.packages or find_module(module, [str(self.folder)]) is not None or package in offered_packages():
            return None
        return (
            f"package {package!r} is no code of this project: put the function into its folder code/, or write "
            f"`code: {{packages: [{package}]}}` into project.yaml"
        )


def is_standard(module: str) -> bool:
    """Tell whether a module belongs to the standard library or to the interpreter."""
    package = module.partition(".")[0]
    return package in sys.stdlib_module_names or package in sys.builtin_module_names


@cache
def offered_packages() -> frozenset[str]:
    """Packages that offer code by entry points."""
    points = importlib.metadata.entry_points()
    groups = [group for group in points.groups if group.startswith(ENTRY_POINTS)]
    return frozenset(point.module.partition(".")[0] for group in groups for point in points.select(group=group))


def import_callable(path: str, *, source: str, field: str) -> Callable[..., Any]:
    """Import the callable that a spec names.

    Args:
        path: ``package.module:function``.
        source: file or object that names it, for the error.
        field: dotted path inside ``source``.

    Raises:
        ImportPathError: the module fails to import or lacks the name, or the name is not callable or belongs to the standard
            library.
    """
    module, _, name = path.partition(":")
    if is_standard(module):
        raise ImportPathError(source, field, path, STANDARD)
    try:
        imported = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ImportPathError(source, field, path, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(imported):
        raise ImportPathError(source, field, path, f"names a {type(imported).__name__}, which cannot be called")
    # A library's module also has the names that it imported.
    if isinstance(imported, type | FunctionType | BuiltinFunctionType) and is_standard(str(imported.__module__)):
        raise ImportPathError(source, field, path, STANDARD)
    return imported  # type: ignore[no-any-return]  # just tested to be callable


def call_factory(path: str, config: Mapping[str, Any], *arguments: Any, source: str, field: str = "", **named: Any) -> Any:
    """Return what a factory of user code makes of its ``config``, and of arguments that are ours.

    Args:
        path: ``package.module:function``, or that of a class.
        config: keyword arguments of the block.
        source: file or object that has the block, for errors.
        field: of the block there, which has the fields ``factory`` and ``config``; empty where the source is the block itself.

    Raises:
        ImportPathError: the path cannot be imported.
        ConfigError: the factory refused its config.
    """
    prefix = f"{field}." if field else ""
    factory = import_callable(path, source=source, field=f"{prefix}factory")
    try:
        return factory(*arguments, **named, **config)
    except Exception as error:
        rule = f"{path} refused it: {type(error).__name__}: {error}"
        raise ConfigError(source, f"{prefix}config", dict(config), rule) from error


def made_by_factory(
    path: str,
    config: Mapping[str, Any],
    kind: type | None = None,
    *arguments: Any,
    what: str,
    source: str,
    field: str = "",
    **named: Any,
) -> Any:
    """Return the function, or the object of a kind, that a factory of user code makes.

    Args:
        path: as for ``call_factory``, like ``config``, ``source``, ``field`` and further arguments.
        config: keyword arguments of the block.
        kind: class or protocol of the object; None for a function.
        what: what the factory must return, in words: ``a function of two windows``.
        source: file or object that has the block.
        field: of the block there.

    Raises:
        ImportPathError: the path cannot be imported, or its result is another one.
        ConfigError: the factory refused its config.
    """
    made: object = call_factory(path, config, *arguments, source=source, field=field, **named)
    if not (callable(made) if kind is None else isinstance(made, kind)):
        rule = f"must return {what}, not {type(made).__name__}"
        raise ImportPathError(source, f"{field}.factory" if field else "factory", path, rule)
    return made


def module_exists(module: str) -> bool:
    """Test that a dotted module can be found, without running any of its packages."""
    return module in sys.modules or find_module(module) is not None


def find_module(module: str, folders: list[str] | None = None) -> importlib.machinery.ModuleSpec | None:
    """Find a dotted module in folders, by default those of `sys.path`, without running any of its packages; None if absent.

    Importing remembers what folders hold, also that one does not exist. A module that is not found is therefore looked for once
    more without that memory: its file may be newer.
    """
    spec = _find_module(module, folders)
    if spec is None:
        importlib.invalidate_caches()
        spec = _find_module(module, folders)
    return spec


def _find_module(module: str, folders: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    search = folders
    spec: importlib.machinery.ModuleSpec | None = None
    for part in module.split("."):
        # By its last name: the locations of a namespace package with a dotted name ask for a parent that nobody imported.
        spec = importlib.machinery.PathFinder.find_spec(part, search)
        if spec is None and search is None:
            spec = importlib.machinery.BuiltinImporter.find_spec(part)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or [])
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = search
    return spec
