"""Versions of a registered model in MLflow: their tags, the times they were live, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterable
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
from modyn_dagster.reporting.mlflow.series import utc_text
from modyn_dagster.reporting.tables import Table
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion


def read_models(engine: sa.Engine, run: RunRow) -> tuple[list[ModelRow], list[Verdict]]:
    """The models of a run, and how each did against the champion of its time."""
    metric = parse_spec(run.spec, PipelineSpec, source=run.title).evaluation.score_metric
    with transaction(engine) as conn:
        models = list_models(conn, run.id)
        cells = list_evaluations(conn, run.id)
    return models, champions([model.ordinal for model in models], cells, metric)


TRIGGER: Final = "modyn/trigger"
_MODEL: Final = "modyn/model"
_LIVE_FROM: Final = "modyn/live_from"
_RUN: Final = "modyn/run"
_CREATED: Final = "modyn/created"


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """The version that was current at a moment: its number, trigger, the id of its model in the store, and since when."""

    name: str
    version: int
    trigger: str
    model: str
    since: datetime


def version_tags(run: RunRow, model: ModelRow) -> dict[str, str]:
    """What a version is known by."""
    # Ids begin again in another database: the time of creation tells its runs apart.
    identity = {_RUN: str(run.id), _CREATED: utc_text(run.created_at), TRIGGER: partition_key(run.id, model.ordinal)}
    return identity | {_MODEL: model.hash, _LIVE_FROM: utc_text(model.created_at)}


def belongs_to_run(version: ModelVersion, run: RunRow) -> bool:
    """Whether it is a model of this run."""
    return (version.tags.get(_RUN), version.tags.get(_CREATED)) == (str(run.id), utc_text(run.created_at))


def run_filter(name: str, run: RunRow) -> str:
    """MLflow's filter for the versions of a run."""
    return f"name = '{name}' AND tag.`{_RUN}` = '{run.id}' AND tag.`{_CREATED}` = '{utc_text(run.created_at)}'"


def live_version(version: ModelVersion) -> LiveVersion | None:
    """What the tags say; None for a version that somebody registered or changed by hand."""
    tags = version.tags
    try:
        since = datetime.fromisoformat(tags[_LIVE_FROM])
        found = LiveVersion(version.name, int(version.version), tags[TRIGGER], tags[_MODEL], since)
    except (KeyError, ValueError):
        return None
    return None if since.tzinfo is None else found


def in_order(versions: Iterable[ModelVersion]) -> list[LiveVersion]:
    """Those of pipelines as one after the other went live; of two at the same moment the later version."""
    found = [live for version in versions if (live := live_version(version)) is not None]
    return sorted(found, key=lambda live: (live.since, live.version))


def versions_page(lives: Iterable[LiveVersion], pipeline: str) -> str:
    """The page that says which version was live when, the newest first; a version is live from its moment on.

    Markdown, from versions in the order in which they went live. Moments are as exact as the catalog has them.
    """
    rows: list[tuple[str, ...]] = []
    until = "now"
    for live in reversed(list(lives)):
        since = str(live.since.astimezone(UTC).replace(tzinfo=None))
        rows.append((str(live.version), since, until, live.trigger, live.model[:12]))
        until = since
    caption = f"The newest {len(rows)} versions of {pipeline}; times in UTC."
    return Table(("version", "live from", "until", "trigger", "model"), tuple(rows), caption).markdown()
