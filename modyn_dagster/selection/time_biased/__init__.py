"""Samples of a stream that forget: bounded, biased towards recent items by wall-clock age, updated batch by batch.

``RTBS`` and ``TTBS`` also come in shards, as ``DRTBS`` and ``DTTBS``.

Usable without a pipeline: keys are any ``uint64`` numbers. After Hentschel, Haas, Tian, "Temporally-Biased Sampling for Online
Model Management" (EDBT 2018).
"""

from modyn_dagster.selection.time_biased.btbs import BTBS
from modyn_dagster.selection.time_biased.decay import decay_for
from modyn_dagster.selection.time_biased.rtbs import RTBS
from modyn_dagster.selection.time_biased.sampler import Sampler
from modyn_dagster.selection.time_biased.sharded import DRTBS, DTTBS
from modyn_dagster.selection.time_biased.ttbs import TTBS
from modyn_dagster.selection.time_biased.uniform_reservoir import UniformReservoir
from modyn_dagster.selection.time_biased.windows import SlidingWindow, TimeWindow

__all__ = ["BTBS", "DRTBS", "DTTBS", "RTBS", "TTBS", "Sampler", "SlidingWindow", "TimeWindow", "UniformReservoir", "decay_for"]
