"""Resources of Dagster, and the launcher, queue and event store of ``dagster.yaml``. They need the extra ``dagster``."""

from modyn_dagster.imports import require

require("dagster", __name__)
