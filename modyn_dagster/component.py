"""A project folder as a Dagster component.

``defs/<any name>/defs.yaml`` of a Dagster project::

    type: modyn_dagster.component.ModynComponent
    attributes:
      project: ../../../forecasting   # relative to this file
"""

from modyn_dagster.imports import require

require("dagster", __name__)

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from modyn_dagster.assets.translator import ModynTranslator
from modyn_dagster.build import build_definitions
from modyn_dagster.errors import ConfigError


class ProjectParams(BaseModel):
    """Options of ``dg scaffold defs``: those of ``modyn-dagster init``."""

    model_config = ConfigDict(extra="forbid")

    data: str | None = Field(None, description="Your data: a CSV, JSON lines or Parquet file, or a folder of such.")
    template: Literal["tabular", "images", "text", "clicks"] | None = Field(
        None, description="A small stream of this kind instead; default: tabular."
    )
    time: str | None = Field(None, description="Column with the time of a sample.")
    time_format: str | None = Field(None, description="How that is written, as strptime takes it: %d/%m/%Y.")
    label: str | None = Field(None, description="Column that models predict.")
    label_kind: Literal["class", "target"] | None = Field(None, description="Whether that is a class, or a number to estimate.")
    id: str | None = Field(None, description="Column that names a sample, with another value in every row.")


class ProjectScaffolder(dg.Scaffolder[ProjectParams]):
    """Makes a project folder with its ``defs.yaml``, as ``modyn-dagster init`` does, and asks nothing."""

    @classmethod
    def get_scaffold_params(cls) -> type[ProjectParams]:
        """Options of the command."""
        return ProjectParams

    def scaffold(self, request: dg.ScaffoldRequest[ProjectParams]) -> None:
        """Write the folder; ``ConfigError`` names an option, or what the data lack."""
        from modyn_dagster.cli.init.command import project_from_data, project_from_template, require_name

        if request.scaffold_format != "yaml" or request.append:
            raise ConfigError("dg scaffold", "--format", request.scaffold_format, "must be yaml, of a folder of its own")
        columns = request.params.model_dump(exclude={"data", "template"})
        if request.params.data is not None and request.params.template is not None:
            raise ConfigError("dg scaffold", "--template", request.params.template, "excludes --data")
        require_name(request.target_path.name)
        if request.params.data is not None:
            project_from_data(request.target_path, Path(request.params.data).absolute(), columns, ask=False)
        elif given := [name for name, value in columns.items() if value is not None]:
            raise ConfigError("dg scaffold", f"--{given[0].replace('_', '-')}", columns[given[0]], "needs --data")
        else:
            project_from_template(request.target_path, request.params.template or "tabular")
        dg.scaffold_component(request, {"project": "."})


@dg.scaffold_with(ProjectScaffolder)
@dataclass
class ModynComponent(dg.Component, dg.Resolvable):
    """Assets, sensors, jobs and resources of one folder with ``datasets/`` and ``pipelines/``.

    Where state lives is read from the environment. Override ``translator`` to change keys, groups, owners or descriptions.

    Attributes:
        project: the folder, relative to the component's own.
    """

    project: str = "."

    def translator(self) -> ModynTranslator:
        """Appearance of the specs in Dagster."""
        return ModynTranslator()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The same as ``build_definitions`` of the folder."""
        return build_definitions((context.path / self.project).resolve(), translator=self.translator())
