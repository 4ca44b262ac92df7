"""A project folder as a Dagster component.

``defs/<any name>/defs.yaml`` of a Dagster project::

    type: modyn_dagster.component.ModynComponent
    attributes:
      project: ../../../forecasting   # relative to this file
"""

from modyn_dagster.imports import require

require("dagster", __name__)

from dataclasses import dataclass

import dagster as dg

from modyn_dagster.assets.translator import ModynTranslator
from modyn_dagster.build import build_definitions


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
