"""The laws of triggering policies and of drift metrics, checked for yours: ``check_policy`` and ``check_metric``."""

from modyn_dagster.triggering.conformance.laws import check_policy
from modyn_dagster.triggering.conformance.metrics import check_metric

__all__ = ["check_metric", "check_policy"]
