"""Models of pipelines as registered versions in MLflow: one per trained trigger, with the aliases ``current`` and ``champion``.

Like everything in MLflow they come from the catalog: what is missing is made up, an alias that is wrong is moved.
"""

from __future__ import annotations

import hashlib
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
_TOLD: Final = "modyn/told"
#: Versions whose verdicts share a digest: so many are read again when one of them changes.
BLOCK: Final = 50


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
        """Register the models of a run that are missing, move the aliases, renew the page. Returns the registered name.

        Versions are registered in the order of their triggers, and digests of what was told of them stand with the registered
        model: only the newest are read, and older ones where a verdict changed.
        """
        name = registered_name(run)
        keys = [partition_key(run.id, model.ordinal) for model in models]
        texts = [f"{'promoted' if verdict.promoted else 'not promoted'}: {verdict.reason}" for verdict in verdicts]
        told = _digests(run, texts)
        with self._errors():
            registered = self._ensure(name, run)
            first = _first_changed(registered.tags.get(tag := f"{_TOLD}/{run.id}", ""), told, len(keys))
            known = self._newest_of_run(name, run, len(keys) - first) if keys else {}
            n_known = max((n for n, key in enumerate(keys, 1) if key in known), default=0)
            for key, model in zip(keys[n_known:], models[n_known:], strict=True):
                known[key] = self._register(name, run, model)
            self._mark(name, known, dict(zip(keys[first:], texts[first:], strict=True)))
            if models:
                champion = partition_key(run.id, verdicts[-1].champion)
                if champion not in known:
                    known[champion] = self._version_of(name, run, champion)
                self._move(registered, {"current": known[keys[-1]], "champion": known[champion]})
                self._client.set_registered_model_tag(name, tag, told)
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

    def _newest_of_run(self, name: str, run: RunRow, n: int) -> dict[str, ModelVersion]:
        found = self._client.search_model_versions(_of_run(name, run), max_results=n, order_by=["version_number DESC"])
        return {version.tags[_TRIGGER]: version for version in found}

    def _version_of(self, name: str, run: RunRow, key: str) -> ModelVersion:
        [found] = self._client.search_model_versions(f"{_of_run(name, run)} AND tag.`{_TRIGGER}` = '{key}'", max_results=1)
        return found

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

    def _mark(self, name: str, known: Mapping[str, ModelVersion], texts: Mapping[str, str]) -> None:
        """Every version tells how it did against the champion of its time."""
        for key, text in texts.items():
            if known[key].tags.get(_CHAMPION_BECAUSE) != text:
                self._client.set_model_version_tag(name, known[key].version, _CHAMPION_BECAUSE, text)

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


def _of_run(name: str, run: RunRow) -> str:
    # Ids begin again in another database: the time of creation tells its runs apart.
    return f"name = '{name}' AND tag.`modyn/run` = '{run.id}' AND tag.`modyn/created` = '{utc_text(run.created_at)}'"


def _digests(run: RunRow, texts: Sequence[str]) -> str:
    """What is told of a run's versions: when it was created, and a digest of each block of verdicts."""
    blocks = ["\n".join(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    digests = [hashlib.blake2b(block.encode(), digest_size=6).hexdigest() for block in blocks]
    return " ".join([utc_text(run.created_at).replace(" ", "_"), *digests])


def _first_changed(before: str, now: str, n: int) -> int:
    """The first of ``n`` versions that may have to be told something else; the newest always, for it may be missing."""
    old, new = before.split(), now.split()
    if not old or old[0] != new[0]:
        return 0
    same = next((i for i, (one, other) in enumerate(zip(old[1:], new[1:], strict=False)) if one != other), len(old) - 1)
    return max(0, min(same * BLOCK, n - 1))


def _live(version: ModelVersion) -> LiveVersion:
    tags = version.tags
    since = datetime.fromisoformat(tags[_LIVE_FROM])
    return LiveVersion(version.name, int(version.version), tags[_TRIGGER], tags["modyn/model"], since)
