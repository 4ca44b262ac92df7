"""Models of pipelines as registered versions in MLflow: one per trained trigger; aliases name the newest, champion and live one.

The catalog is the source: missing versions are registered, wrong aliases are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
from modyn_dagster.reporting.mlflow.registry.aliases import CHAMPION, LIVE, NEWEST, move_aliases
from modyn_dagster.reporting.mlflow.registry.records import RecordOf, serving_tags, version_source
from modyn_dagster.reporting.mlflow.registry.versions import (
    TRIGGER,
    JudgedModels,
    LiveVersion,
    belongs_to_run,
    in_order,
    live_tag,
    live_versions,
    run_filter,
    version_tags,
    versions_page,
)
from modyn_dagster.reporting.mlflow.stream_time import utc_text
from modyn_dagster.reporting.scores import spec_of
from modyn_dagster.values.digest import bytes_digest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel


#: Versions listed on the page of a registered model.
VERSIONS_ON_PAGE: Final = 100
_CHAMPION_BECAUSE: Final = "modyn/champion"
#: Tag of a registered model with the digests of a run's verdicts, before the id of the run.
DIGEST_TAG: Final = "modyn/told"
#: Versions whose verdicts share a digest: all of them are read again when one changes.
BLOCK: Final = 50
#: Missing versions that are requested one by one; for more, all versions of the run are read.
_FEW: Final = 3
_NEWEST_FIRST: Final = ["version_number DESC"]


def registered_name(run: RunRow) -> str:
    """Name of the registered model of a pipeline; replays have their own."""
    return run.pipeline if run.mode == "live" else f"{run.pipeline}.replay"


class RegisteredModels:
    """Registry of one MLflow. Every method raises ``TrackingError`` when MLflow is down or refuses."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._address = address_of(client.tracking_uri)

    def sync(
        self,
        run: RunRow,
        found: JudgedModels,
        record_of: RecordOf,
        progress: Callable[[], None] = lambda: None,
    ) -> str:
        """Register missing models of a run, move the aliases and renew the page. Returns the registered name.

        Versions are registered in the order of their triggers. Digests of their verdicts are stored with the registered model:
        only the newest versions are read, and older ones whose verdict changed. One of these that was deleted by hand is
        registered again. The aliases belong to the run whose model went live last. ``record_of`` makes the record by which a
        version is served. ``progress`` is called after each version that is registered or marked.
        """
        name, (models, verdicts, crowned) = registered_name(run), found
        by_key = {partition_key(run.id, model.ordinal): model for model in models}
        keys = list(by_key)
        texts = [f"{'promoted' if verdict.promoted else 'not promoted'}: {verdict.reason}" for verdict in verdicts]
        digests = _digests(run, texts)
        with self._errors():
            registered = self._ensure(name, run)
            shown = list(
                self._client.search_model_versions(f"name = '{name}'", max_results=VERSIONS_ON_PAGE, order_by=_NEWEST_FIRST)
            )
            if keys:
                first = _first_changed(registered.tags.get(tag := f"{DIGEST_TAG}/{run.id}", ""), digests, len(keys))
                # Without a champion the aliases stay where they are.
                best_of = verdicts[-1].champion
                champion = keys[-1] if best_of is None else partition_key(run.id, best_of)
                own = _by_trigger(version for version in shown if belongs_to_run(version, run))
                if len(shown) < VERSIONS_ON_PAGE:
                    known, missing = own, [key for key in keys if key not in own]
                else:
                    known, missing = self._known(run_filter(name, run), own, keys, first, champion)
                for key in missing:
                    moments = [by_key[key].created_at] if crowned is None else crowned.get(key, [])
                    known[key] = self._register(name, run, by_key[key], moments, record_of)
                    shown.append(known[key])
                    progress()
                for key, moments in (crowned or {}).items():
                    if key in known:
                        self._tell_live(known[key], live_tag(moments))
                for _ in self._marked(name, known, dict(zip(keys[first:], texts[first:], strict=True))):
                    progress()
                if _newest_is_of(shown, run) and best_of is not None:
                    newest, best = known[keys[-1]], known[champion]
                    live = best if spec_of(run).live_model == "champion" else newest
                    move_aliases(self._client, registered, {NEWEST: newest, CHAMPION: best, LIVE: live})
                if registered.tags.get(tag) != digests:
                    self._client.set_registered_model_tag(name, tag, digests)
            text = versions_page(in_order(shown)[-VERSIONS_ON_PAGE:], run.pipeline)
            if registered.description != text:
                self._client.update_registered_model(name, text)
        return name

    def live_at(self, pipeline: str, moment: datetime) -> LiveVersion | None:
        """Newest version of a live pipeline at a moment; None before the first. A moment without a time zone is in UTC."""
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        with self._errors():
            versions = self._client.search_model_versions(f"name = '{pipeline}'")
        return next((live for live in reversed(in_order(versions)) if live.since <= moment), None)

    def _ensure(self, name: str, run: RunRow) -> RegisteredModel:
        existing = self._client.search_registered_models(f"name = '{name}'", max_results=1)
        if existing:
            return existing[0]
        tags = {"modyn/pipeline": run.pipeline, "modyn/mode": run.mode}
        return self._client.create_registered_model(name, tags)

    def _known(
        self, where: str, shown: Mapping[str, ModelVersion], keys: Sequence[str], first: int, champion: str
    ) -> tuple[dict[str, ModelVersion], list[str]]:
        """Versions of a run by trigger, at least all from ``first`` on and the champion's; and the triggers without a version."""
        known = dict(shown)
        if len(known) < (n_newest := len(keys) - first):
            known |= _by_trigger(self._client.search_model_versions(where, max_results=n_newest, order_by=_NEWEST_FIRST))
        oldest = next((n for n, key in enumerate(keys[:first]) if key in known), first)
        required = dict.fromkeys([champion, *keys[oldest:]])
        missing = [key for key in required if key not in known]
        filters = [f"{where} AND tag.`{TRIGGER}` = '{key}'" for key in missing] if len(missing) <= _FEW else [where]
        for one in filters:
            known |= _by_trigger(self._client.search_model_versions(one))
        return known, [key for key in keys if key in required and key not in known]

    def _tell_live(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Set the tag of the moments at which a version went live, also in the version that was read."""
        for tag, text in tags.items():
            if version.tags.get(tag) != text:
                self._client.set_model_version_tag(version.name, version.version, tag, text)
                version.tags[tag] = text

    def _register(
        self, name: str, run: RunRow, model: ModelRow, moments: Sequence[datetime], record_of: RecordOf
    ) -> ModelVersion:
        tags = version_tags(run, model, moments) | serving_tags(record_of(model))
        return self._client.create_model_version(
            name,
            # Not a file: the weights come from the model store, which may hold them as a difference to another model.
            version_source(name, tags[TRIGGER], model.hash),
            tags=tags,
            description=f"Trigger {tags[TRIGGER]}, {model.n_samples:,} samples. `ModelStore(root).load('{model.hash}')`",
            await_creation_for=0,
        )

    def _marked(self, name: str, known: Mapping[str, ModelVersion], texts: Mapping[str, str]) -> Iterator[ModelVersion]:
        """Tag versions with their verdict against the champion of their time, one at a time."""
        for key, text in texts.items():
            if known[key].tags.get(_CHAMPION_BECAUSE) != text:
                self._client.set_model_version_tag(name, known[key].version, _CHAMPION_BECAUSE, text)
                yield known[key]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with tracking_errors(self._address):
            yield


def _by_trigger(versions: Iterable[ModelVersion]) -> dict[str, ModelVersion]:
    return {version.tags[TRIGGER]: version for version in versions if TRIGGER in version.tags}


def _newest_is_of(versions: Sequence[ModelVersion], run: RunRow) -> bool:
    """Tell whether the model that went live last is of this run: a sync of an older run leaves the aliases alone."""
    newest = in_order(versions)[-1:]
    return any(live in live_versions(version) and belongs_to_run(version, run) for live in newest for version in versions)


def _digests(run: RunRow, texts: Sequence[str]) -> str:
    """Time of creation of a run, and a digest of each block of its verdicts."""
    blocks = ["\n".join(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    digests = [bytes_digest(block.encode(), 6) for block in blocks]
    return " ".join([utc_text(run.created_at).replace(" ", "_"), *digests])


def _first_changed(before: str, now: str, n: int) -> int:
    """Index of the first of ``n`` versions whose verdict may have changed; at most the newest, which may be missing."""
    old, new = before.split(), now.split()
    if not old or old[0] != new[0]:
        return 0
    same = next((i for i, (one, other) in enumerate(zip(old[1:], new[1:], strict=False)) if one != other), len(old) - 1)
    return max(0, min(same * BLOCK, n - 1))
