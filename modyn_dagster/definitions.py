"""The code location: everything in the project folder that the environment names (``MODYN_PROJECT``)."""

from modyn_dagster.imports import require

require("dagster", __name__)

import dagster as dg

from modyn_dagster.build import build_definitions

# One process per run, backfills included: with the default executor every step would import torch again.
defs = dg.Definitions.merge(build_definitions(), dg.Definitions(executor=dg.in_process_executor))
