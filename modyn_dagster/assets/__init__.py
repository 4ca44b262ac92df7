"""Assets, jobs and checks of Dagster: bodies of a few lines that call the packages below. They need the extra ``dagster``."""

from modyn_dagster.imports import require

require("dagster", __name__)
