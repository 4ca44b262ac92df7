"""Origins of the functions that the specs of a project may name: its folder ``code`` and the packages of ``project.yaml``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import STANDARD, CodeSources, add_code_folder, is_standard
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.reading.complaints import config_error
from modyn_dagster.values.yaml_values import read_yaml


class CodeSpec(Spec):
    """Installed packages whose functions the specs of a project may name, beside those in its folder ``code``."""

    packages: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]] = Field(default_factory=list)


class ProjectSpec(Spec):
    """The file `project.yaml`."""

    code: CodeSpec = CodeSpec()


def project_code(folder: Path) -> CodeSources:
    """Read the origins of code that a project's specs may name, and make its folder ``code`` importable.

    Raises ``ConfigError`` for a `project.yaml` that is impossible.
    """
    add_code_folder(folder)
    path = folder / "project.yaml"
    packages = _project_spec(path).code.packages if path.exists() else []
    for package in packages:
        if is_standard(package):
            raise ConfigError(str(path), "code.packages", package, STANDARD)
    return CodeSources(folder / "code", frozenset(packages))


def _project_spec(path: Path) -> ProjectSpec:
    content = read_yaml(path)
    try:
        return ProjectSpec.model_validate(content)
    except ValidationError as error:
        raise config_error(str(path), content, error) from None
