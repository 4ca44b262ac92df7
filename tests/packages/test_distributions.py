"""Wheel and source distribution: what is in them, and the wheel used where there is no compiler."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

import pytest

import modyn_dagster
from tests.packages.conftest import ROOT, BareEnvironment, Distributions

pytestmark = [pytest.mark.process, pytest.mark.soak("packages")]


def test_the_wheel_holds_the_packages_with_their_types_data_and_compiled_kernels(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as archive:
        names = set(archive.namelist())
    suffixes = (".py", ".typed", ".js", ".css", ".html", ".mako", ".template", ".pyi")
    tree = {str(path.relative_to(ROOT)) for package in ("modyn_dagster", "fastpath") for path in (ROOT / package).rglob("*")}
    assert {name for name in tree if name.endswith(suffixes)} - names == set()
    kernels = {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")}
    assert kernels >= {path.stem for path in (ROOT / "fastpath").rglob("*.pyx")}
    assert [name for name in names if name.endswith((".c", ".cpp", ".pyx"))] == []


def test_the_wheel_names_its_python_its_extras_and_its_entry_points(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as archive:
        folder = f"modyn_dagster-{modyn_dagster.__version__}.dist-info"
        metadata = message_from_bytes(archive.read(f"{folder}/METADATA"))
        entry_points = archive.read(f"{folder}/entry_points.txt").decode()
    assert metadata["Requires-Python"] == ">=3.11,<3.14"
    assert {"dagster", "mlflow", "report", "ray", "all"} <= set(metadata.get_all("Provides-Extra") or [])
    for group in ("console_scripts", "dagster_dg_cli.registry_modules", "mlflow.artifact_repository", "mlflow.app"):
        assert f"[{group}]" in entry_points


def test_the_source_distribution_holds_the_sources_of_the_kernels_and_nothing_built(distributions: Distributions) -> None:
    with tarfile.open(distributions.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {
        str(path.relative_to(ROOT)) for end in ("pyx", "pxd", "h", "pyi") for path in (ROOT / "fastpath").rglob(f"*.{end}")
    }
    assert sources - names == set()
    assert [name for name in names if name.endswith((".so", ".c", ".pyc"))] == []


def test_the_light_core_works_without_a_compiler(installed: Callable[[str], BareEnvironment], tmp_path: Path) -> None:
    environment = installed("")
    environment.run("init", "shop", "--template", "tabular", cwd=tmp_path, program="modyn-dagster")
    environment.run("check", "--data", cwd=tmp_path / "shop", program="modyn-dagster")
    example = shutil.copy(ROOT / "examples" / "without_dagster.py", tmp_path)
    printed = environment.run(example, "shop", cwd=tmp_path / "shop")
    assert "3600 samples of 60 days, 8 triggers" in printed
    assert "200 samples chosen" in printed
    assert "verified: True" in printed
    question = "import importlib.util as u; print([n for n in ('dagster', 'mlflow', 'matplotlib', 'pandas') if u.find_spec(n)])"
    assert environment.run("-c", question, cwd=tmp_path).strip() == "[]"
