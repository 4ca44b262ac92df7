"""How far two windows of samples are apart."""

from modyn_dagster.triggering.drift.measure import measure_drift

__all__ = ["measure_drift"]
