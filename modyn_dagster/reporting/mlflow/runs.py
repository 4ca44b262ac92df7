"""Runs in MLflow: found or created by their tags, and updated with as few calls as possible."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.reporting.mlflow.changes import update_run
from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
from modyn_dagster.reporting.mlflow.content import Content
from modyn_dagster.reporting.mlflow.series import Series

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mlflow import MlflowClient
    from mlflow.entities import Run

_SOURCE: Final = {"mlflow.source.name": "modyn-dagster", "mlflow.source.type": "JOB"}

#: Runs whose series are remembered, the last ones: so many triggers of a replay are scored again at its end.
_MOST_REMEMBERED: Final = 256

logger = logging.getLogger(__name__)


class TrackedRuns:
    """Runs of one MLflow. Every method raises ``TrackingError`` when MLflow is down or refuses."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._address = address_of(client.tracking_uri)
        self._experiments: dict[str, str] = {}
        self._sent: dict[str, dict[str, Series]] = {}

    def ensure(self, experiment_id: str, content: Content, stored: str | None) -> Run:
        """Run with the identity of a content: by its stored id, else by its tags, else a new one."""
        with self._errors():
            run = self._get(stored) or self._find(experiment_id, content.identity) or self._create(experiment_id, content)
        self._experiments[run.info.run_id] = str(run.info.experiment_id)
        return run

    def write(self, run: Run, content: Content) -> bool:
        """Update a run, sending only the differences; series are not read again while their digest is one that was sent.

        False, with nothing sent, if the run has a wrong parameter or point: MLflow can only add to both, so the run must be
        replaced.
        """
        with self._errors():
            digest = update_run(self._client, run, content, self._sent.pop(run.info.run_id, {}))
        if digest is not None:
            self._sent[run.info.run_id] = {digest: content.series}
            for oldest in list(self._sent)[:-_MOST_REMEMBERED]:
                del self._sent[oldest]
        return digest is not None

    def exists(self, run_id: str) -> bool:
        """Tell whether a run exists and is not in the trash."""
        with self._errors():
            return self._get(run_id) is not None

    def tag(self, run_id: str, name: str) -> str | None:
        """Value of a tag of a run; None without it."""
        with self._errors():
            value: str | None = self._client.get_run(run_id).data.tags.get(name)
        return value

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        """Set or overwrite a tag."""
        with self._errors():
            self._client.set_tag(run_id, name, value)

    def delete(self, run_id: str) -> None:
        """Move a run to MLflow's trash."""
        with self._errors():
            self._client.delete_run(run_id)

    def add_files(
        self,
        run_id: str,
        tables: Mapping[str, Any],
        texts: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Store JSON files and texts with a run, replacing earlier ones; False, with a warning, if that fails.

        The numbers are shown even with a wrong artifact location.
        """
        from mlflow.exceptions import MlflowException

        try:
            for name, table in tables.items():
                self._client.log_dict(run_id, table, name)
            for name, text in texts.items():
                self._client.log_text(run_id, text, name)
        except (MlflowException, OSError) as error:
            logger.warning("MLflow at %s took no files of run %s: %s", self._address, run_id, error)
            return False
        return True

    def add_file(self, run_id: str, path: Path) -> bool:
        """Store a file with a run, replacing one of the same name; False, with a warning, if that fails."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_artifact(run_id, str(path))
        except (MlflowException, OSError) as error:
            logger.warning("MLflow at %s took no files of run %s: %s", self._address, run_id, error)
            return False
        return True

    def experiment_of(self, run_id: str) -> str:
        """Id of the experiment of a run."""
        if run_id not in self._experiments:
            with self._errors():
                self._experiments[run_id] = str(self._client.get_run(run_id).info.experiment_id)
        return self._experiments[run_id]

    def _errors(self) -> AbstractContextManager[None]:
        return tracking_errors(self._address)

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
        where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
        runs = self._client.search_runs([experiment_id], where, max_results=1)
        return runs[0] if runs else None

    def _create(self, experiment_id: str, content: Content) -> Run:
        tags = {**_SOURCE, **content.identity}
        return self._client.create_run(experiment_id, start_time=content.start, tags=tags, run_name=content.name)
