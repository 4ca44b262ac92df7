"""Aliases in MLflow after a person's promotion: moved at once, so that whoever serves the model need not wait for a sensor."""

from typing import TYPE_CHECKING

from modyn_dagster.errors import TrackingError
from modyn_dagster.resources.mlflow import MlflowResource

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


def aliases_moved(platform: "Platform", mlflow: MlflowResource, run: "RunRow") -> str:
    """Move the aliases of a run's models in MLflow, and say so in a sentence; an MLflow that is away is told by the next sync."""
    if not mlflow.enabled:
        return "MLflow: tracking is off, so no alias was moved"
    try:
        timeout = platform.settings.mlflow_timeout
        mlflow.within(timeout, lambda progress: mlflow.tracker().sync_models(platform.engine, run, progress))
    except TrackingError as error:
        return f"{error}; the promotion holds, and the next evaluation moves the aliases"
    return "MLflow: the aliases are where they belong"
