"""The laws of triggering policies, drift metrics and detectors, checked for yours by ``check_policy`` and its sisters."""

from modyn_dagster.triggering.conformance.detectors import check_detector
from modyn_dagster.triggering.conformance.laws import check_policy
from modyn_dagster.triggering.conformance.metrics import check_metric

__all__ = ["check_detector", "check_metric", "check_policy"]
