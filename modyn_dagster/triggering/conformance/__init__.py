"""The laws every triggering policy obeys, checked for yours: ``check_policy``."""

from modyn_dagster.triggering.conformance.laws import check_policy

__all__ = ["check_policy"]
