"""Time-biased samples in shards: a coordinator deals numbers of items, and every shard chooses among its own."""

from modyn_dagster.selection.time_biased.sharded.drtbs import DRTBS
from modyn_dagster.selection.time_biased.sharded.dttbs import DTTBS

__all__ = ["DRTBS", "DTTBS"]
