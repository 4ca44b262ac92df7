"""The plug-in of examples/plugin: its functions obey the laws, and specs may name them once it is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.projects.tiny import Content, amount, triggered, write_project

ROOT: Final = Path(__file__).parents[2]
PLUGIN: Final = ROOT / "examples" / "plugin"
LAWS: Final = """
from modyn_dagster.selection.conformance import check_strategy
from modyn_dagster.triggering.conformance import check_metric, check_policy
from modyn_seasons.drift import spread
from modyn_seasons.selection import newest_of_each_class
from modyn_seasons.triggering import MonthStart

check_policy(lambda: MonthStart(2))
check_strategy(newest_of_each_class, {"share": 0.5})
check_metric(spread)
"""

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the plug-in alone, built from a copy, as building leaves files beside the source."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source")
    target = folder / "packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*command, str(target), str(folder / "source")], check=True, stdin=subprocess.DEVNULL)
    return target


def pipeline() -> Content:
    content = triggered("seasonal", {"kind": "custom", "factory": "modyn_seasons.triggering:MonthStart", "config": {"every": 2}})
    return content | {"selection": {"strategy": {"kind": "custom", "factory": "modyn_seasons.selection:newest_of_each_class"}}}


def ran(command: list[str], packages: Path | None, project: Path = ROOT) -> tuple[int, str]:
    """Exit status of a command with a folder of packages, and all that it said."""
    path = os.pathsep.join([str(ROOT), *([] if packages is None else [str(packages)])])
    environment = os.environ | {"PYTHONPATH": path, "MODYN_PROJECT": str(project)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.soak("packages")
def test_its_functions_obey_the_laws(installed: Path) -> None:
    assert ran([sys.executable, "-c", LAWS], installed) == (0, "")


def test_specs_may_name_it_once_it_is_installed(installed: Path, tmp_path: Path) -> None:
    write_project(tmp_path, [amount(), pipeline()])
    check = [str(Path(sys.executable).with_name("modyn-dagster")), "check"]
    status, said = ran(check, installed, tmp_path)
    assert status == 0, said
    status, said = ran(check, None, tmp_path)
    assert status != 0
    assert "module 'modyn_seasons.triggering' does not exist on the Python path" in said
    shutil.copytree(installed / "modyn_seasons", tmp_path / "elsewhere" / "modyn_seasons")
    status, said = ran(check, tmp_path / "elsewhere", tmp_path)
    assert status != 0
    assert "package 'modyn_seasons' is no code of this project" in said
