"""Sensors and schedules of Dagster. They need the extra ``dagster``."""

from modyn_dagster.imports import require

require("dagster", __name__)
