"""Models that pipelines still use: live ones, the newest ones of replays, and champions."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.evaluation.composite.champion import champions
from modyn_dagster.pipeline.platform import Platform, recorded_spec


def models_in_use(platform: Platform, root: object | None = None) -> Mapping[str, list[str]]:
    """Uses of models for people, by model. ``root`` leaves out the pipelines whose models are in another store."""
    with platform.transaction() as conn:
        # Later runs replace earlier ones: what the newest production and the newest replay of a pipeline show is in use.
        newest = {(run.pipeline, run.mode): run for run in list_runs(conn)}
        uses: dict[str, list[str]] = defaultdict(list)
        for run in newest.values():
            if root is None or _is_stored_at(platform, run, root):
                for model, use in _shown_by(conn, run):
                    uses[model].append(use)
    return uses


def _is_stored_at(platform: Platform, run: RunRow, root: object) -> bool:
    asked = str(root)
    # The place may have changed since the run began.
    places = {str(platform.models_of(spec).root) for spec in (recorded_spec(run), platform.spec_of(run))}
    return asked in places or ("://" not in asked and Path(asked).resolve() in {Path(place).resolve() for place in places})


def _shown_by(conn: sa.Connection, run: RunRow) -> list[tuple[str, str]]:
    models = list_models(conn, run.id)
    if not models:
        return []
    metric = recorded_spec(run).evaluation.score_metric
    verdicts = champions([model.ordinal for model in models], list_evaluations(conn, run.id), metric)
    champion = next(row for row in models if row.ordinal == verdicts[-1].champion)
    current = "the live model" if run.mode == "live" else "the newest model of the newest replay"
    use = f"the champion of run {run.id} of {run.pipeline}"
    return [(models[-1].hash, f"{current} of pipeline {run.pipeline}"), (champion.hash, use)]
