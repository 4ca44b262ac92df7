"""Versions of a registered model in MLflow: tags, live times, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.live_runs import last_live_run
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.evaluation.composite.champion import Verdict
from modyn_dagster.evaluation.promotion.verdicts import champion_verdicts
from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
from modyn_dagster.reporting.mlflow.stream_time import utc_text
from modyn_dagster.reporting.scores import spec_of
from modyn_dagster.reporting.tables import Table

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


class JudgedModels(NamedTuple):
    """Models of a run as the catalog has them.

    Attributes:
        models: in the order of their triggers.
        verdicts: one per model, against the champion of its time.
        champion: ordinal of the champion's trigger; None where a deletion has withdrawn it and no other model took its place.
        crowned: moments at which models became the champion, by trigger, where the champion is live; else None.
        owns_aliases: no other run of the pipeline has a model that went live later.
    """

    models: list[ModelRow]
    verdicts: list[Verdict]
    champion: int | None
    crowned: Mapping[str, Sequence[datetime]] | None
    owns_aliases: bool


def read_models(engine: sa.Engine, run: RunRow) -> JudgedModels:
    """Models of a run, the verdict of each against the champion of its time, and the champion of now."""
    spec = spec_of(run)
    with transaction(engine) as conn:
        models = list_models(conn, run.id)
        cells = list_evaluations(conn, run.id)
        events = list_promotions(conn, run.id)
        recorded = get_run(conn, run.id).champion_model
        owns_aliases = last_live_run(conn, run) == run.id
    verdicts = champion_verdicts(spec, [model.ordinal for model in models], cells, events)
    champion = verdicts[-1].champion if verdicts else None
    if champion not in {model.ordinal for model in models}:
        # Its model was withdrawn: until the gate has named another one, the run's row does.
        champion = next((model.ordinal for model in reversed(models) if model.hash == recorded), None)
    hashes = {model.ordinal: model.hash for model in models}
    crowned: dict[str, list[datetime]] = {}
    for event in events:
        # A model that a deletion has made again was not live when the one before it was.
        if event.state == "champion" and event.model_hash == hashes.get(event.ordinal):
            crowned.setdefault(event.partition_key, []).append(event.created_at)
    return JudgedModels(models, verdicts, champion, crowned if spec.live_model == "champion" else None, owns_aliases)


TRIGGER: Final = "modyn/trigger"
#: Tag of a version whose model a deletion has taken away, with the trigger whose model it was.
TRIGGER_BEFORE: Final = "modyn/trigger_before"
MODEL: Final = "modyn/model"
LIVE_FROM: Final = "modyn/live_from"
#: Tag of a version with the verdict against the champion of its time, and its first word where it became the champion.
VERDICT: Final = "modyn/champion"
PROMOTED: Final = "promoted"
_RUN: Final = "modyn/run"
#: Characters of the description of a registered model in MLflow's tables.
MOST_IN_DESCRIPTION: Final = 5_000
_CREATED: Final = "modyn/created"


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """A version with its trigger, the id of its model in the store, and the moment it went live."""

    name: str
    version: int
    trigger: str
    model: str
    since: datetime


def live_tag(moments: Sequence[datetime]) -> dict[str, str]:
    """Tag with the moments at which a version went live; none where it never did."""
    return {LIVE_FROM: " ".join(map(utc_text, moments))} if moments else {}


def version_tags(run: RunRow, model: ModelRow, moments: Sequence[datetime]) -> dict[str, str]:
    """Tags that identify a version, and those of the moments at which it went live."""
    # Run ids start again in another database: the time of creation distinguishes them.
    identity = {_RUN: str(run.id), _CREATED: utc_text(run.created_at), TRIGGER: partition_key(run.id, model.ordinal)}
    return identity | {MODEL: model.hash} | live_tag(moments)


def belongs_to_run(version: ModelVersion, run: RunRow) -> bool:
    """Tell whether a version is a model of a run."""
    return (version.tags.get(_RUN), version.tags.get(_CREATED)) == (str(run.id), utc_text(run.created_at))


def run_filter(name: str, run: RunRow) -> str:
    """Filter for the versions of a run, in MLflow's syntax."""
    return f"name = '{name}' AND tag.`{_RUN}` = '{run.id}' AND tag.`{_CREATED}` = '{utc_text(run.created_at)}'"


def live_filter(name: str) -> str:
    """Filter for the versions that were live at some time, in MLflow's syntax."""
    return f"name = '{name}' AND tag.`{LIVE_FROM}` LIKE '%'"


def live_versions(version: ModelVersion) -> list[LiveVersion]:
    """Read a version's tags, one entry per moment at which it went live; none for a version registered or changed by hand."""
    tags = version.tags
    try:
        moments = [datetime.fromisoformat(text) for text in tags[LIVE_FROM].split()]
        trigger = tags.get(TRIGGER) or tags[TRIGGER_BEFORE]
        lives = [LiveVersion(version.name, int(version.version), trigger, tags[MODEL], moment) for moment in moments]
    except (KeyError, ValueError):
        return []
    return [live for live in lives if live.since.tzinfo is not None]


def in_order(versions: Iterable[ModelVersion]) -> list[LiveVersion]:
    """Versions of pipelines in the order they went live; those of the same moment by number."""
    lives = [live for version in versions for live in live_versions(version)]
    return sorted(lives, key=lambda live: (live.since, live.version))


def versions_page(lives: Iterable[LiveVersion], pipeline: str) -> str:
    """Markdown page of versions and their live times, the newest first; the oldest are left out where MLflow has no room.

    Args:
        lives: versions in the order they went live.
        pipeline: its name.
    """
    shown = list(lives)
    while len(text := _page(shown, pipeline)) > MOST_IN_DESCRIPTION:
        shown = shown[max(1, len(shown) // 8) :]
    return text


def _page(lives: Sequence[LiveVersion], pipeline: str) -> str:
    rows: list[tuple[str, ...]] = []
    until = "now"
    for live in reversed(lives):
        since = str(live.since.astimezone(UTC).replace(tzinfo=None))
        rows.append((str(live.version), since, until, live.trigger, live.model[:12]))
        until = since
    caption = f"The newest {len(rows)} versions of {pipeline}; times in UTC."
    return Table(("version", "live from", "until", "trigger", "model"), tuple(rows), caption).markdown()


def aliased_models(client: MlflowClient, pipeline: str, aliases: Sequence[str]) -> frozenset[str]:
    """Ids of a pipeline's models, live or replayed, that have one of some aliases. ``TrackingError`` when MLflow is down."""
    models = set[str]()
    with tracking_errors(address_of(client.tracking_uri)):
        for name in (pipeline, f"{pipeline}.replay"):
            for registered in client.search_registered_models(f"name = '{name}'", max_results=1):
                versions = {version for alias, version in registered.aliases.items() if alias in aliases}
                tags = [client.get_model_version(name, str(version)).tags for version in sorted(versions)]
                models.update(found[MODEL] for found in tags if MODEL in found)
    return frozenset(models)
