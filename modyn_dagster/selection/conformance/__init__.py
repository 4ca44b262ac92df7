"""The laws every selection strategy obeys, checked for yours: ``check_strategy``."""

from modyn_dagster.selection.conformance.laws import check_strategy

__all__ = ["check_strategy"]
