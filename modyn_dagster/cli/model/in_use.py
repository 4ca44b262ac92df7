"""Models that pipelines still use: live ones, champions, and those that the next training starts from."""

from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from modyn_dagster.cli.project import missing_project, open_platform
from modyn_dagster.errors import RunError
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


def refuse_if_in_use(root: str, model: str) -> None:
    """Raise ``RunError`` where a pipeline of the project uses a model of the store at ``root``; it names every use.

    A folder without a project has no pipelines. ``DatabaseDown`` where the catalog cannot be asked.
    """
    if missing_project(Settings.from_environment().project) is not None:
        return
    with closing(open_platform()) as platform:
        uses = _uses(platform, root).get(model, [])
    if uses:
        rule = "train a newer model or remove the pipeline first"
        raise RunError(f"model {model} is {' and '.join(uses)}; {rule}")


def _uses(platform: "Platform", root: str) -> dict[str, list[str]]:
    """Uses of each model of a store, for people."""
    from modyn_dagster.catalog.runs import list_runs

    with platform.transaction() as conn:
        runs = list_runs(conn)
    # Later runs replace earlier ones: what the newest production and the newest replay of a pipeline show is in use.
    newest = {(run.pipeline, run.mode): run for run in runs}
    uses: dict[str, list[str]] = defaultdict(list)
    for run in newest.values():
        if _is_stored_at(platform, run, root):
            for model, use in _uses_by(platform, run):
                uses[model].append(use)
    return uses


def _is_stored_at(platform: "Platform", run: "RunRow", root: str) -> bool:
    from modyn_dagster.reporting.scores import spec_of

    place = platform.models_of(spec_of(run)).root
    return str(place) == str(root) or ("://" not in str(root) and Path(root).resolve() == Path(str(place)).resolve())


def _uses_by(platform: "Platform", run: "RunRow") -> list[tuple[str, str]]:
    from modyn_dagster.reporting.mlflow.versions import read_models

    models, verdicts = read_models(platform.engine, run)
    if not models:
        return []
    champion = next(row for row in models if row.ordinal == verdicts[-1].champion)
    current = "the live model" if run.mode == "live" else "the newest model of the newest replay"
    use = f"the champion of run {run.id} of {run.pipeline}"
    return [(models[-1].hash, f"{current} of pipeline {run.pipeline}"), (champion.hash, use)]
