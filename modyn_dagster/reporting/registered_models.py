"""Models of pipelines as registered versions in MLflow: one per trained trigger, with the aliases ``current`` and ``champion``.

Like everything in MLflow they come from the catalog: what is missing is made up, an alias that is wrong is moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.evaluation.champion import Verdict
from modyn_dagster.reporting.tables import Table
from modyn_dagster.reporting.tracked_points import utc_text
from modyn_dagster.reporting.tracking_client import address_of, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

#: Versions that the page of a registered model lists.
_ON_PAGE: Final = 100
_TRIGGER: Final = "modyn/trigger"
_LIVE_FROM: Final = "modyn/live_from"
_CHAMPION_BECAUSE: Final = "modyn/champion"


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """The version that was current at a moment: its number, trigger, the id of its model in the store, and since when."""

    name: str
    version: int
    trigger: str
    model: str
    since: datetime


def registered_name(run: RunRow) -> str:
    """Replays do not mix with what is live."""
    return run.pipeline if run.mode == "live" else f"{run.pipeline}.replay"


class RegisteredModels:
    """The registry of one MLflow. Every method raises ``TrackingError`` when it is down or refuses."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._address = address_of(client.tracking_uri)

    def sync(self, run: RunRow, models: Sequence[ModelRow], verdicts: Sequence[Verdict]) -> str:
        """Register the models of a run that are missing, move the aliases, renew the page. Returns the registered name."""
        name = registered_name(run)
        with self._errors():
            registered = self._ensure(name, run)
            known = self._of_run(name, run)
            for model in models:
                if (key := partition_key(run.id, model.ordinal)) not in known:
                    known[key] = self._register(name, run, model)
            self._mark(name, run, known, verdicts)
            if models:
                wanted = {"current": models[-1].ordinal, "champion": verdicts[-1].champion}
                self._move(registered, {alias: known[partition_key(run.id, n)] for alias, n in wanted.items()})
            self._describe(registered, run)
        return name

    def live_at(self, pipeline: str, moment: datetime) -> LiveVersion | None:
        """The version of a live pipeline that was the newest at a moment; None before the first."""
        with self._errors():
            versions = self._client.search_model_versions(f"name = '{pipeline}'")
        found = [version for version in map(_live, versions) if version.since <= moment]
        return max(found, key=lambda version: (version.since, version.version), default=None)

    def _ensure(self, name: str, run: RunRow) -> RegisteredModel:
        found = self._client.search_registered_models(f"name = '{name}'", max_results=1)
        if found:
            return found[0]
        tags = {"modyn/pipeline": run.pipeline, "modyn/mode": run.mode}
        return self._client.create_registered_model(name, tags)

    def _of_run(self, name: str, run: RunRow) -> dict[str, ModelVersion]:
        # Ids begin again in another database: the time of creation tells its runs apart.
        where = f"name = '{name}' AND tag.`modyn/run` = '{run.id}' AND tag.`modyn/created` = '{utc_text(run.created_at)}'"
        return {version.tags[_TRIGGER]: version for version in self._client.search_model_versions(where)}

    def _register(self, name: str, run: RunRow, model: ModelRow) -> ModelVersion:
        key = partition_key(run.id, model.ordinal)
        identity = {"modyn/run": str(run.id), "modyn/created": utc_text(run.created_at), _TRIGGER: key}
        tags = identity | {"modyn/model": model.hash, _LIVE_FROM: utc_text(model.created_at)}
        return self._client.create_model_version(
            name,
            # Not a file: whoever wants the weights asks the model store, which knows what they are the difference to.
            f"modyn-model:///{model.hash}",
            tags=tags,
            description=f"Trigger {key}, trained on {model.n_samples:,} samples. `ModelStore(root).load('{model.hash}')`",
            await_creation_for=0,
        )

    def _mark(self, name: str, run: RunRow, known: Mapping[str, ModelVersion], verdicts: Sequence[Verdict]) -> None:
        """Every version tells how it did against the champion of its time."""
        for verdict in verdicts:
            version = known[partition_key(run.id, verdict.trigger)]
            text = f"{'promoted' if verdict.promoted else 'not promoted'}: {verdict.reason}"
            if version.tags.get(_CHAMPION_BECAUSE) != text:
                self._client.set_model_version_tag(name, version.version, _CHAMPION_BECAUSE, text)

    def _move(self, registered: RegisteredModel, wanted: Mapping[str, ModelVersion]) -> None:
        for alias, version in wanted.items():
            if str(registered.aliases.get(alias)) != str(version.version):
                self._client.set_registered_model_alias(registered.name, alias, version.version)

    def _describe(self, registered: RegisteredModel, run: RunRow) -> None:
        """The page that says which version was live when."""
        where = f"name = '{registered.name}'"
        newest = self._client.search_model_versions(where, max_results=_ON_PAGE, order_by=["version_number DESC"])
        rows, until = [], "now"
        for version in map(_live, newest):
            since = f"{version.since:%Y-%m-%d %H:%M:%S}"
            rows.append((str(version.version), since, until, version.trigger, version.model[:12]))
            until = since
        caption = f"The newest {len(rows)} versions of {run.pipeline}; times in UTC."
        text = Table(("version", "live from", "until", "trigger", "model"), tuple(rows), caption).markdown()
        if registered.description != text:
            self._client.update_registered_model(registered.name, text)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with tracking_errors(self._address):
            yield


def _live(version: ModelVersion) -> LiveVersion:
    tags = version.tags
    since = datetime.fromisoformat(tags[_LIVE_FROM])
    return LiveVersion(version.name, int(version.version), tags[_TRIGGER], tags["modyn/model"], since)
