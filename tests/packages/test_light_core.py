"""The light core: what works where no extra is installed, and what the rest says then."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from modyn_dagster.errors import MissingPackage, ModynError
from modyn_dagster.imports import EXTRA_OF, missing_package, require

pytestmark = pytest.mark.process

#: Names of modules that need the extra dagster begin like this.
OF_DAGSTER = tuple(f"modyn_dagster.{name}" for name in ("assets", "build", "component", "definitions", "resources", "sensors"))
#: MLflow imports it, and nothing else does.
OF_MLFLOW = "modyn_dagster.serving.artifact_repository"
#: A few of many, as importing all of them takes seconds.
FACES = (
    "fastpath",
    *(f"modyn_dagster.{name}" for name in ("triggering", "selection.time_biased", "model_store.store", "assets", "build")),
)


def tried(project: Path, *modules: str) -> tuple[dict[str, str], dict[str, str]]:
    (project / "datasets").mkdir()
    script = Path(__file__).with_name("without_extras.py")
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = os.environ | {"MODYN_PROJECT": str(project), "MODYN_HOME": str(project / ".modyn"), "PYTHONPATH": path}
    command = [sys.executable, str(script), *modules]
    printed = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True).stdout
    found = json.loads(printed)
    return found["refused"], found["said"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    return tried(tmp_path_factory.mktemp("project"), *FACES)


def sentence(extra: str) -> str:
    return f"which is not installed; run `pip install 'modyn-dagster[{extra}]'`"


def test_policies_samplers_stores_and_commands_load_without_any_extra(alone: tuple[dict[str, str], dict[str, str]]) -> None:
    refused, _ = alone
    assert set(refused) == {"modyn_dagster.assets", "modyn_dagster.build"}


def test_parts_of_dagster_say_which_extra_they_need(alone: tuple[dict[str, str], dict[str, str]]) -> None:
    refused, _ = alone
    assert refused["modyn_dagster.build"] == f"modyn_dagster.build needs dagster, {sentence('dagster')}"


def test_commands_say_in_one_line_which_extra_they_need(alone: tuple[dict[str, str], dict[str, str]]) -> None:
    _, said = alone
    assert said
    for command, output in said.items():
        assert output.startswith("error: "), command
        assert output.strip().count("\n") == 0, command
        assert sentence("mlflow" if "mlflow" in command else "dagster") in output, command


@pytest.mark.soak("packages")
def test_every_other_module_loads_without_any_extra(tmp_path: Path) -> None:
    refused, _ = tried(tmp_path)
    assert {name for name in refused if not name.startswith(OF_DAGSTER)} == {OF_MLFLOW}
    assert all(refused[name] == f"{name} needs dagster, {sentence('dagster')}" for name in OF_DAGSTER)


def test_a_package_that_is_there_is_not_missing() -> None:
    require("mlflow", "tracking")


def test_the_error_is_one_of_ours_and_of_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingPackage, match=r"the report needs plotly, .*modyn-dagster\[report\]") as raised:
        require("plotly", "the report")
    assert isinstance(raised.value, ModynError)
    assert isinstance(raised.value, ModuleNotFoundError)
    assert (raised.value.name, raised.value.extra) == ("plotly", "report")


def test_an_import_that_fails_deep_inside_names_the_extra_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        import matplotlib.figure  # noqa: F401
    found = missing_package(raised.value, "this command")
    assert found is not None
    assert str(found) == f"this command needs matplotlib, {sentence('report')}"


@pytest.mark.parametrize("error", [ModuleNotFoundError("no", name="shop"), ImportError("broken"), ValueError("no")])
def test_other_errors_are_not_about_an_extra(error: Exception) -> None:
    assert missing_package(error, "this command") is None


def test_a_module_missing_inside_an_installed_package_is_not_about_an_extra() -> None:
    assert missing_package(ModuleNotFoundError("no", name="mlflow.nowhere"), "this command") is None


def test_plots_and_the_report_say_which_extra_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from modyn_dagster.reporting.plots.figures import new_axes

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"modyn-dagster\[report\]"):
        new_axes("", "", "")


def test_tracking_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from modyn_dagster.reporting.mlflow.client import tracking_errors

    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackage, match=r"modyn-dagster\[mlflow\]"), tracking_errors("here"):
        pass


def test_every_optional_package_has_an_extra_of_setup_py() -> None:
    source = (Path(__file__).parents[2] / "setup.py").read_text()
    assert [extra for extra in EXTRA_OF.values() if f'"{extra}": ' not in source] == []
