"""The laws of intervals and of composite models, checked for yours: ``check_intervals`` and ``check_composite``."""

from modyn_dagster.evaluation.conformance.composites import check_composite
from modyn_dagster.evaluation.conformance.intervals import check_intervals

__all__ = ["check_composite", "check_intervals"]
