"""JSON Schemas: those in docs/ are current, and accept and refuse the same YAML files as the specs."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from modyn_dagster.cli import main
from modyn_dagster.cli.schema import SCHEMAS, schema_of, schema_text
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec

ROOT = Path(__file__).parents[2]
FOLDER_OF: dict[str, type[Spec]] = {"datasets": DatasetSpec, "pipelines": PipelineSpec}
EXAMPLES = sorted(ROOT.glob("examples/*/*/*.yaml"))


class JsonLoader(yaml.SafeLoader):
    """YAML as an editor sees it: a date is the text that stands there."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(path: Path) -> dict[Hashable, Any]:
    content = yaml.load(path.read_text(), Loader=JsonLoader)  # noqa: S506 - a SafeLoader with fewer types
    assert isinstance(content, dict)
    return content


def validator(path: Path) -> Draft202012Validator:
    return Draft202012Validator(schema_of(FOLDER_OF[path.parent.name]))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_in_docs_are_those_of_the_code(name: str) -> None:
    assert (ROOT / "docs" / "schemas" / name).read_text() == schema_text(SCHEMAS[name]), "run `modyn-dagster schema`"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_are_valid_schemas(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(SCHEMAS[name]))


def test_there_are_examples_of_both_kinds() -> None:
    assert {path.parent.name for path in EXAMPLES} == set(FOLDER_OF)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_validate(path: Path) -> None:
    assert [error.message for error in validator(path).iter_errors(load(path))] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_field_that_does_not_exist_is_underlined(path: Path) -> None:
    [error] = validator(path).iter_errors({**load(path), "trigegr": {}})
    assert "trigegr" in error.message


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_name_their_schema_to_editors(path: Path) -> None:
    line = path.read_text().splitlines()[0]
    comment, _, target = line.partition("$schema=")
    assert comment == "# yaml-language-server: "
    assert (path.parent / target).resolve() == ROOT / "docs" / "schemas" / f"{path.parent.name[:-1]}.schema.json"


def test_the_command_writes_them(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["schema", "--output", str(tmp_path / "new")])
    assert result.exit_code == 0
    assert result.stdout.split() == [str(tmp_path / "new" / name) for name in SCHEMAS]
    for name, kind in SCHEMAS.items():
        assert json.loads((tmp_path / "new" / name).read_text()) == schema_of(kind)
