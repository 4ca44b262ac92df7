"""`dg scaffold defs` of a project: the folder of `modyn-dagster init` with its `defs.yaml`, which loads and passes its check."""

import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster.components.testing import create_defs_folder_sandbox

from modyn_dagster.cli import main
from modyn_dagster.component import ModynComponent, ProjectParams, ProjectScaffolder
from modyn_dagster.errors import ConfigError
from tests.cli.drawn_tables import plain

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")


def request(folder: Path, **options: Any) -> dg.ScaffoldRequest[ProjectParams]:
    folder.mkdir(exist_ok=True)
    how: Any = options.pop("scaffold_format", "yaml")
    return dg.ScaffoldRequest("modyn_dagster.component.ModynComponent", folder, how, None, ProjectParams(**options))


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_data_become_a_project_whose_definitions_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "data.csv").write_text(plain())
    with create_defs_folder_sandbox() as sandbox:
        params = {"data": str(tmp_path / "data.csv"), "label": "label"}
        folder = sandbox.scaffold_component(component_cls=ModynComponent, defs_path="shop", scaffold_params=params)
        with sandbox.load_component_and_build_defs(defs_path=folder) as (component, defs):
            assert isinstance(component, ModynComponent)
            keys = {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
        assert {"shop/samples", "by_amount/model", "by_time/model"} <= keys
        assert {"defs.yaml", "datasets/shop.yaml", "pipelines/by_amount.yaml", "code/shop_model.py"} <= files(folder)
        checked = CliRunner().invoke(main, ["check", "--data"], env={"MODYN_PROJECT": str(folder)})
        assert (checked.exit_code, checked.stderr) == (0, "")


def test_a_template_is_there_with_its_data(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    ProjectScaffolder().scaffold(request(folder, template="clicks"))
    assert {"defs.yaml", "datasets/shop.yaml"} <= files(folder)
    assert any(name.startswith("data/") for name in files(folder))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "d.csv", "template": "text"}, "--template: .*excludes --data"),
        ({"time": "day"}, "--time: .*needs --data"),
        ({"label_kind": "class"}, "--label-kind: .*needs --data"),
        ({"scaffold_format": "python"}, "must be yaml"),
    ],
)
def test_options_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProjectScaffolder().scaffold(request(tmp_path / "shop", **options))
    assert files(tmp_path) == set()


def test_a_name_that_no_module_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="such as my_shop"):
        ProjectScaffolder().scaffold(request(tmp_path / "my-shop"))
