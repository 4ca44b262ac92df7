"""Drift metrics: distances between two windows of samples."""

from modyn_dagster.triggering.drift.measure import measure_drift

__all__ = ["measure_drift"]
