"""Modules of the product and the imports between them, read from their syntax trees."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "modyn_dagster"
NATIVE = ROOT / "fastpath"


class Import(NamedTuple):
    """One imported module, wherever in a file the statement stands: also inside functions and for types only."""

    path: Path
    line: int
    module: str

    @property
    def importer(self) -> str:
        """Dotted name of the importing module; a package's ``__init__`` has the package's name."""
        return name_of(self.path)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file() or place.with_suffix(".pyx").is_file()


def files(folder: Path = PACKAGE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def imports_of(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from _from_imports(path, node)


def _from_imports(path: Path, node: ast.ImportFrom) -> Iterator[Import]:
    module = node.module or ""
    for alias in node.names:
        # `from modyn_dagster import keys` imports the module modyn_dagster.keys.
        full = f"{module}.{alias.name}"
        yield Import(path, node.lineno, full if is_module(full) else module)


@cache
def all_imports(folder: Path = PACKAGE) -> tuple[Import, ...]:
    """Imports of every module below a folder, fronts of packages left out: they re-export."""
    return tuple(found for path in files(folder) if path.name != "__init__.py" for found in imports_of(path))


def imports_from(*roots: str) -> list[Import]:
    """Imports of the package's modules whose first part is among ``roots``."""
    return [found for found in all_imports() if found.module.partition(".")[0] in roots]
