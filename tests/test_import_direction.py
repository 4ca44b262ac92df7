"""Imports run one way (docs/architecture.md), and loading the definitions loads and touches little."""

import ast
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "modyn_dagster"
NATIVE = ROOT / "fastpath"

FACE = {"cli", "definitions", "build", "component", "assets", "sensors", "resources"}
FLOOR = {"keys", "randomness", "errors", "storage", "synced_along", "settings", "imports"}
FLOOR |= {"code_digest", "reproducible", "surroundings"}
#: From the top down: a module imports what stands below its own layer.
LAYERS = [
    FACE,
    {"pipeline", "reporting"},
    {"triggering", "selection", "training", "evaluation", "model_store"},
    {"catalog", "ingestion"},
    {"spec"},
    FLOOR,
]
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
#: What a package may import of its own layer, apart from itself.
BESIDE = {**dict.fromkeys(FACE, FACE), **dict.fromkeys(FLOOR, FLOOR), "ingestion": {"catalog"}}
WITHOUT_NATIVE = {"spec", "errors", "triggering"}
HEAVY = ["torch", "mlflow", "alibi_detect", "lightning_fabric", "torchmetrics", "sklearn", "matplotlib", "plotly"]


class Import(NamedTuple):
    """One imported module, wherever in a file the statement stands: also inside functions and for types only."""

    path: Path
    line: int
    module: str

    @property
    def importer(self) -> str:
        """The first part below the package: ``catalog`` of ``catalog/tables.py``, ``keys`` of ``keys.py``."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @property
    def imported(self) -> str:
        """The same of what is imported; empty for the package itself, which holds only the version."""
        return self.module.partition(".")[2].partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


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
        yield Import(path, node.lineno, full if _is_module(full) else module)


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def all_imports(*roots: str) -> list[Import]:
    """Imports whose first part is among ``roots``, of the package but for its empty front."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
    return [found for path in files for found in imports_of(path) if found.module.partition(".")[0] in roots]


def is_allowed(importer: str, imported: str) -> bool:
    if importer == imported or not imported:
        return True
    return RANK[importer] < RANK[imported] or imported in BESIDE.get(importer, ())


def test_every_package_has_a_place_in_the_order() -> None:
    found = {
        path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert found - {"__init__"} <= set(RANK)


def test_imports_run_one_way() -> None:
    ours = all_imports("modyn_dagster")
    assert len(ours) > 50
    assert [str(found) for found in ours if not is_allowed(found.importer, found.imported)] == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("catalog", "spec", True),
        ("spec", "catalog", False),
        ("ingestion", "catalog", True),
        ("catalog", "ingestion", False),
        ("selection", "training", False),
        ("pipeline", "selection", True),
        ("selection", "pipeline", False),
        ("cli", "resources", True),
        ("reporting", "resources", False),
        ("storage", "errors", True),
        ("errors", "spec", False),
    ],
)
def test_the_rule_is_the_one_of_the_drawing(importer: str, imported: str, allowed: bool) -> None:
    assert is_allowed(importer, imported) is allowed


def test_only_the_face_knows_dagster() -> None:
    known = [found for found in all_imports("dagster", "dagster_postgres", "dagster_shared") if found.importer not in FACE]
    assert [str(found) for found in known] == []


def test_nobody_imports_private_parts_of_dagster() -> None:
    private = [found for found in all_imports("dagster") if any(part.startswith("_") for part in found.module.split("."))]
    assert [str(found) for found in private] == []


def test_specs_errors_and_triggering_do_without_native_code() -> None:
    users = [found for found in all_imports("fastpath") if found.importer in WITHOUT_NATIVE]
    assert [str(found) for found in users] == []


def test_native_code_knows_nothing_of_ours_nor_of_databases_and_frameworks() -> None:
    statement = re.compile(r"^\s*(?:from|import|cimport)\s+([\w.]+)", re.MULTILINE)
    files = [path for suffix in ("py", "pyi", "pyx", "pxd") for path in sorted(NATIVE.rglob(f"*.{suffix}"))]
    assert files
    foreign = {"modyn_dagster", "dagster", "torch", "psycopg", "psycopg2", "sqlalchemy"}
    found = [(path.name, name) for path in files for name in statement.findall(path.read_text(encoding="utf-8"))]
    assert [(path, name) for path, name in found if name.partition(".")[0] in foreign] == []


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Stands where Postgres would; whoever connects is noticed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_loading_the_definitions_loads_nothing_heavy_and_touches_neither_postgres_nor_the_network(
    server: socket.socket, tmp_path: Path
) -> None:
    program = f"""
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise RuntimeError(f"network: {{event}} {{arguments}}")

sys.addaudithook(refuse)
import modyn_dagster.definitions
heavy = sorted(set({HEAVY!r}) & set(sys.modules))
sys.exit(f"loaded: {{heavy}}" if heavy else 0)
"""
    url = f"postgresql://somebody:secret@127.0.0.1:{server.getsockname()[1]}/postgres"
    places = {"MODYN_HOME": str(tmp_path / "home"), "MODYN_PROJECT": str(ROOT / "examples" / "baseball")}
    environment = {**os.environ, **places, "MODYN_POSTGRES_URL": url, "DAGSTER_PG_URL": url}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert select.select([server], [], [], 0)[0] == [], "something connected to Postgres"
    assert not (tmp_path / "home").exists()
