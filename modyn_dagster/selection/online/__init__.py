"""Online strategies in pipelines: samplers of a stream, their state, and training sets from it."""

from modyn_dagster.selection.online.samplers import build_sampler, decay_rate, unit_of
from modyn_dagster.selection.online.selection import OnlineSelection, inclusion_probabilities
from modyn_dagster.selection.online.state import GONE, OnlineState

__all__ = ["GONE", "OnlineSelection", "OnlineState", "build_sampler", "decay_rate", "inclusion_probabilities", "unit_of"]
