"""Runs in MLflow: found or made by their tags, and brought to a wanted content with as few calls as possible."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from modyn_dagster.reporting.tracked_content import Content
from modyn_dagster.reporting.tracked_inputs import log_missing
from modyn_dagster.reporting.tracked_points import SERIES_PREFIXES, Point, digest_of
from modyn_dagster.reporting.tracking_client import address_of, tracking_errors

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.entities import Run

T = TypeVar("T")

#: What MLflow takes in one call.
_METRICS_PER_CALL: Final = 1000
_OTHERS_PER_CALL: Final = 100
_DIGEST: Final = "modyn/digest"
#: Which of its two faces MLflow shows: training runs, not conversations.
_EXPERIMENT: Final = {"mlflow.experimentKind": "custom_model_development"}
_SOURCE: Final = {"mlflow.source.name": "modyn-dagster", "mlflow.source.type": "JOB"}

logger = logging.getLogger(__name__)


class TrackedRuns:
    """The runs of one MLflow. Every method raises ``TrackingError`` when it is down or refuses."""

    def __init__(self, client: MlflowClient, artifact_root: str | None = None) -> None:
        self._client = client
        self._address = address_of(client.tracking_uri)
        self._artifact_root = artifact_root
        self._experiments: dict[str, str] = {}

    def experiment(self, name: str) -> str:
        """The id of an experiment; made when missing, restored when deleted."""
        with self._errors():
            found = self._client.get_experiment_by_name(name) or self._create_experiment(name)
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)

    def ensure(self, experiment_id: str, content: Content, stored: str | None) -> Run:
        """The run with this identity: by its stored id, else by its tags, else a new one."""
        with self._errors():
            run = self._get(stored) or self._find(experiment_id, content.identity) or self._create(experiment_id, content)
        self._experiments[run.info.run_id] = str(run.info.experiment_id)
        return run

    def write(self, run: Run, content: Content) -> bool:
        """Bring a run to its content, sending only what differs; series are not read again while their digest holds.

        False, with nothing sent, when the run shows a parameter or a point that is no longer true: MLflow can only add to
        both, so the run has to be replaced.
        """
        with self._errors():
            digest = digest_of(content.series)
            same = run.data.tags.get(_DIGEST) == digest
            metrics = [] if same else self._missing_points(run, content)
            if metrics is None or _contradicts(run.data.params, content.params):
                return False
            params = {name: value for name, value in content.params.items() if name not in run.data.params}
            metrics += _changed_numbers(run, content.numbers)
            self._send(run.info.run_id, params, metrics, _changed_tags(run, content))
            log_missing(self._client, run, content.inputs)
            # Last: it promises that all points are there.
            if not same:
                self._client.set_tag(run.info.run_id, _DIGEST, digest)
            self._set_status(run, content)
        return True

    def exists(self, run_id: str) -> bool:
        """Whether a run is there and not in the trash."""
        with self._errors():
            return self._get(run_id) is not None

    def tag(self, run_id: str, name: str) -> str | None:
        """A tag of a run."""
        with self._errors():
            value: str | None = self._client.get_run(run_id).data.tags.get(name)
        return value

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        """Set a tag, whatever it was."""
        with self._errors():
            self._client.set_tag(run_id, name, value)

    def delete(self, run_id: str) -> None:
        """Move a run to MLflow's trash."""
        with self._errors():
            self._client.delete_run(run_id)

    def add_files(self, run_id: str, figures: Mapping[str, Figure], tables: Mapping[str, Any]) -> bool:
        """Put figures and JSON files beside a run, replacing earlier ones; False, with a warning, where there is no place.

        A wrong artifact location is no reason to miss the numbers.
        """
        from mlflow.exceptions import MlflowException

        try:
            for name, figure in figures.items():
                self._client.log_figure(run_id, figure, name)
            for name, table in tables.items():
                self._client.log_dict(run_id, table, name)
        except (MlflowException, OSError) as error:
            logger.warning("MLflow at %s took no files of run %s: %s", self._address, run_id, error)
            return False
        return True

    def add_file(self, run_id: str, path: Path) -> bool:
        """Put a file beside a run, replacing one of its name; False, with a warning, where there is no place."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_artifact(run_id, str(path))
        except (MlflowException, OSError) as error:
            logger.warning("MLflow at %s took no files of run %s: %s", self._address, run_id, error)
            return False
        return True

    def experiment_of(self, run_id: str) -> str:
        """The id of the experiment a run belongs to."""
        if run_id not in self._experiments:
            with self._errors():
                self._experiments[run_id] = str(self._client.get_run(run_id).info.experiment_id)
        return self._experiments[run_id]

    def _errors(self) -> AbstractContextManager[None]:
        return tracking_errors(self._address)

    def _create_experiment(self, name: str) -> Any:
        from mlflow.exceptions import MlflowException

        location = f"{self._artifact_root}/{name}" if self._artifact_root else None
        try:
            made = self._client.create_experiment(name, artifact_location=location, tags=_EXPERIMENT)
            return self._client.get_experiment(made)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._client.get_experiment_by_name(name)

    def _get(self, run_id: str | None) -> Run | None:
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def _find(self, experiment_id: str, identity: Mapping[str, str]) -> Run | None:
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
        found = self._client.search_runs([experiment_id], wanted, max_results=1)
        return found[0] if found else None

    def _create(self, experiment_id: str, content: Content) -> Run:
        tags = {**_SOURCE, **content.identity}
        return self._client.create_run(experiment_id, start_time=content.start, tags=tags, run_name=content.name)

    def _missing_points(self, run: Run, content: Content) -> list[tuple[str, Point]] | None:
        """Points to add; None when some that are there should not be."""
        if {name for name in run.data.metrics if name.startswith(SERIES_PREFIXES)} - content.series.keys():
            return None
        missing = []
        for name, points in content.series.items():
            there = self._points(run, name)
            if there - set(points):
                return None
            missing += [(name, point) for point in points if point not in there]
        return missing

    def _points(self, run: Run, name: str) -> set[Point]:
        if name not in run.data.metrics:
            return set()
        history = self._client.get_metric_history(run.info.run_id, name)
        return {Point(metric.step, metric.timestamp, metric.value) for metric in history}

    def _send(
        self, run_id: str, params: Mapping[str, str], metrics: Sequence[tuple[str, Point]], tags: Mapping[str, str]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        for some in _chunks([Param(*item) for item in params.items()], _OTHERS_PER_CALL):
            self._client.log_batch(run_id, params=some)
        sent = [Metric(name, point.value, point.timestamp, point.step) for name, point in metrics]
        for chunk in _chunks(sent, _METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=chunk)
        for few in _chunks([RunTag(*item) for item in tags.items()], _OTHERS_PER_CALL):
            self._client.log_batch(run_id, tags=few)

    def _set_status(self, run: Run, content: Content) -> None:
        if run.info.status == content.status:
            return
        if content.end is not None:
            self._client.set_terminated(run.info.run_id, content.status, content.end)
        else:
            self._client.update_run(run.info.run_id, status=content.status)


def _contradicts(there: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return any(there.get(name, value) != value for name, value in wanted.items())


def _changed_tags(run: Run, content: Content) -> dict[str, str]:
    there = run.data.tags
    tags = {**content.defaults, **there, **content.tags}
    # An empty tag says no more than none, and looks like an error without a text.
    return {name: value for name, value in tags.items() if there.get(name, "") != value}


def _changed_numbers(run: Run, numbers: Mapping[str, float]) -> list[tuple[str, Point]]:
    # MLflow shows the value with the latest time.
    now = time.time_ns() // 1_000_000
    return [(name, Point(0, now, value)) for name, value in numbers.items() if run.data.metrics.get(name) != value]


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
