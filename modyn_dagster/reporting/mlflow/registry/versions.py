"""Versions of a registered model in MLflow: tags, live times, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.evaluation.composite.champion import Verdict, champions
from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
from modyn_dagster.reporting.mlflow.stream_time import utc_text
from modyn_dagster.reporting.scores import spec_of
from modyn_dagster.reporting.tables import Table

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


def read_models(engine: sa.Engine, run: RunRow) -> tuple[list[ModelRow], list[Verdict]]:
    """Models of a run, and the verdict of each against the champion of its time."""
    metric = spec_of(run).evaluation.score_metric
    with transaction(engine) as conn:
        models = list_models(conn, run.id)
        cells = list_evaluations(conn, run.id)
    return models, champions([model.ordinal for model in models], cells, metric)


TRIGGER: Final = "modyn/trigger"
MODEL: Final = "modyn/model"
_LIVE_FROM: Final = "modyn/live_from"
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


def version_tags(run: RunRow, model: ModelRow) -> dict[str, str]:
    """Tags that identify a version."""
    # Run ids start again in another database: the time of creation distinguishes them.
    identity = {_RUN: str(run.id), _CREATED: utc_text(run.created_at), TRIGGER: partition_key(run.id, model.ordinal)}
    return identity | {MODEL: model.hash, _LIVE_FROM: utc_text(model.created_at)}


def belongs_to_run(version: ModelVersion, run: RunRow) -> bool:
    """Tell whether a version is a model of a run."""
    return (version.tags.get(_RUN), version.tags.get(_CREATED)) == (str(run.id), utc_text(run.created_at))


def run_filter(name: str, run: RunRow) -> str:
    """Filter for the versions of a run, in MLflow's syntax."""
    return f"name = '{name}' AND tag.`{_RUN}` = '{run.id}' AND tag.`{_CREATED}` = '{utc_text(run.created_at)}'"


def live_version(version: ModelVersion) -> LiveVersion | None:
    """Read a version's tags; None for a version registered or changed by hand."""
    tags = version.tags
    try:
        since = datetime.fromisoformat(tags[_LIVE_FROM])
        live = LiveVersion(version.name, int(version.version), tags[TRIGGER], tags[MODEL], since)
    except (KeyError, ValueError):
        return None
    return None if since.tzinfo is None else live


def in_order(versions: Iterable[ModelVersion]) -> list[LiveVersion]:
    """Versions of pipelines in the order they went live; those of the same moment by number."""
    lives = [live for version in versions if (live := live_version(version)) is not None]
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
