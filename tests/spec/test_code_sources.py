"""Origins of user code: a project's folder, packages it names, entry points and libraries; the standard library never."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from modyn_dagster import imports
from modyn_dagster.cli import main
from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import CodeSources, import_callable
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.load import load_project
from modyn_dagster.spec.reading.code_packages import project_code

STANDARD = ["os:system", "builtins:exec", "posix:system", "subprocess:run", "json:loads", "importlib:import_module"]
DATASET = {
    "name": "numbers",
    "root": "data",
    "format": {"kind": "csv"},
    "time": {"source": "column", "column": "t"},
    "label": {"from": {"source": "column"}},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    (tmp_path / "code").mkdir()
    write(tmp_path / "datasets" / "numbers.yaml", DATASET)
    return tmp_path


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def with_model(project: Path, factory: str) -> None:
    content = {
        "name": "hourly",
        "dataset": "numbers",
        "trigger": {"kind": "time", "every": "1h"},
        "training": {"model": {"factory": factory}},
        "evaluation": {"intervals": {"every": "1d"}},
    }
    write(project / "pipelines" / "hourly.yaml", content)


def factory_of(project: Path) -> str:
    model = load_project(project).pipelines["hourly"].training.model
    assert isinstance(model, CustomSpec)
    return model.factory


@pytest.mark.parametrize("path", STANDARD)
def test_the_standard_library_is_refused_everywhere(path: str, project: Path) -> None:
    with_model(project, path)
    for command in (["check"], ["pipeline", "status"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1
        assert "training.model.factory: belongs to the standard library" in result.output
    with pytest.raises(ImportPathError, match="belongs to the standard library"):
        import_callable(path, source="pipeline p", field="parser")
    write(project / "project.yaml", {"code": {"packages": [path.partition(":")[0]]}})
    with pytest.raises(ConfigError, match=r"project.yaml: code.packages: belongs to the standard library"):
        load_project(project)


def test_a_module_of_the_standard_library_is_refused_before_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("this", None)
    with pytest.raises(ImportPathError, match="belongs to the standard library"):
        import_callable("this:d", source="p", field="f")
    assert "this" not in sys.modules
    assert capsys.readouterr().out == ""


def test_names_that_a_module_took_from_the_standard_library_are_refused_too(project: Path) -> None:
    (project / "code" / "reexporting.py").write_text("from os import system\nfrom subprocess import Popen, run\n")
    project_code(project)
    for name in ("system", "run", "Popen"):
        with pytest.raises(ImportPathError, match="belongs to the standard library"):
            import_callable(f"reexporting:{name}", source="p", field="f")


def test_an_installed_package_needs_a_line_in_project_yaml(project: Path) -> None:
    with_model(project, "click.testing:CliRunner")
    with pytest.raises(ConfigError, match=r"hourly.yaml: training.model.factory: package 'click' .*packages: \[click\]"):
        load_project(project)
    result = CliRunner().invoke(main, ["check"])
    assert "package 'click' is no code of this project" in result.output
    write(project / "project.yaml", {"code": {"packages": ["click"]}})
    assert factory_of(project) == "click.testing:CliRunner"


@pytest.mark.parametrize("path", ["torch.hub:load", "torch:load", "torch.utils.cpp_extension:load_inline"])
def test_torch_is_no_origin_as_a_whole(path: str, project: Path) -> None:
    with_model(project, path)
    with pytest.raises(ConfigError, match="package 'torch' is no code of this project"):
        load_project(project)


def test_code_of_the_folder_and_of_libraries_needs_no_line(project: Path) -> None:
    (project / "code" / "shop").mkdir()
    (project / "code" / "shop" / "nets.py").write_text("raise RuntimeError('nothing is imported to check it')\n")
    for factory in ("shop.nets:small", "torch.nn:Identity", "torch.optim:SGD"):
        with_model(project, factory)
        assert factory_of(project) == factory
    assert CodeSources(project / "elsewhere").refusal("shop.nets") is not None


def test_a_package_may_offer_itself_by_an_entry_point(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = CodeSources(project / "code")
    assert sources.refusal("click.testing") is not None
    points = metadata.EntryPoints([metadata.EntryPoint("runner", "click.testing:CliRunner", "modyn_dagster.policies")])
    monkeypatch.setattr(metadata, "entry_points", lambda: points)
    imports.offered_packages.cache_clear()
    assert sources.refusal("click.testing") is None
    assert sources.refusal("yaml") is not None
    imports.offered_packages.cache_clear()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"code": {"package": ["a"]}}, "code.package: is not a field here"),
        ({"code": {"packages": ["a.b"]}}, "should match pattern"),
        (["code"], "must be a mapping of fields"),
    ],
)
def test_a_wrong_project_file_is_named(content: Any, message: str, project: Path) -> None:
    write(project / "project.yaml", content)
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 1
    assert f"{project}{os.sep}project.yaml" in result.output
    assert message in result.output
