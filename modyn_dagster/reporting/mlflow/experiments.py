"""Experiments in MLflow: one per pipeline and one per dataset's comparison, each with a description that says how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from modyn_dagster.catalog.runs import RunRow


#: MLflow shows an experiment as training runs, not as conversations.
_EXPERIMENT: Final = {"mlflow.experimentKind": "custom_model_development"}
_NOTE: Final = "mlflow.note.content"
_OURS: Final = "_Written by modyn-dagster; without this line the text is yours and stays as it is._"
#: MLflow stores 5,000 characters of the whole.
_MOST_IN_DESCRIPTION: Final = 2_000

#: MLflow shows the first line of a description, and the rest on demand.
_PIPELINE: Final = """\
**{name}** on the dataset `{dataset}`. {description}

A run of this experiment is the live run of the pipeline or one replay of it. Below it stands a run per trigger, with the model
that the trigger trained. Everything here is written from the catalog; the next sync restores what is missing.

- **Was it worth it?** `mean_active/{metric}` of the runs, against `triggers`, `samples_trained_on` and `seconds/total`.
- **When was it good?** Charts `evaluation/active {metric}` of a run, `evaluation/{metric}` of its triggers.
- **Why was it trained?** The description of a trigger, and `decision/score` of its run if the policy measures.
- **x-axis:** *Time (wall)* is the date in the stream, 400 years later where the stream begins before 1970 (`modyn/time_shift`).
  *Step* is the year in the stream, or the year × 1,000 or × 1,000,000: `2024500` is the middle of 2024. Of `training/…` it is the
  step or epoch, of `system/…` the epoch or trigger.

The models are versions of the [registered model](#/models/{registered}); the experiment `{dataset}.comparison` compares the
pipelines of the dataset."""

_COMPARISON: Final = """\
**Comparison** of the pipelines of the dataset `{dataset}`.

The run of this experiment compares the pipelines of the dataset: its numbers are their mean scores over the intervals that all of
them share, and its file `{dataset}.html` is the interactive report, which works offline once it is downloaded."""


def pipeline_note(run: RunRow, metric: str, registered: str) -> str:
    """Description of a pipeline's experiment, in Markdown: its content, and the axes of its charts."""
    about = str(run.spec.get("description") or "").strip()[:_MOST_IN_DESCRIPTION]
    names = {"name": run.pipeline, "description": about, "metric": metric, "registered": registered}
    return _PIPELINE.format(**names, dataset=run.spec["dataset"])


def comparison_note(dataset: str) -> str:
    """Description of the experiment of a dataset's comparison, in Markdown."""
    return _COMPARISON.format(dataset=dataset)


class Experiments:
    """Experiments of one MLflow. ``ensure`` raises ``TrackingError`` when MLflow is down or refuses."""

    def __init__(self, client: MlflowClient, artifact_root: str | None = None) -> None:
        self._client = client
        self._address = address_of(client.tracking_uri)
        self._artifact_root = artifact_root

    def ensure(self, name: str, note: str) -> str:
        """Id of an experiment with a description; a missing one is created, a deleted one restored.

        A description that a person wrote stays.
        """
        text = f"{note}\n\n{_OURS}"
        with tracking_errors(self._address):
            experiment = self._client.get_experiment_by_name(name) or self._create(name, text)
            if experiment.lifecycle_stage == "deleted":
                self._client.restore_experiment(experiment.experiment_id)
            present = experiment.tags.get(_NOTE, "")
            if present != text and (not present or _OURS in present):
                self._client.set_experiment_tag(experiment.experiment_id, _NOTE, text)
            return str(experiment.experiment_id)

    def _create(self, name: str, text: str) -> Any:
        from mlflow.exceptions import MlflowException

        location = f"{self._artifact_root}/{name}" if self._artifact_root else None
        try:
            tags = _EXPERIMENT | {_NOTE: text}
            experiment_id = self._client.create_experiment(name, artifact_location=location, tags=tags)
            return self._client.get_experiment(experiment_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._client.get_experiment_by_name(name)
