"""D8 of the two forms of predictions: one pipeline with the full matrix, its predictions compact and exact."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.figures.replaying import Replayed, opened_project, pipeline_of, replayed, write_pipeline, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

#: Models that predict every batch.
_MODELS: Final = 10
_FORMS: Final = ("exact", "compact")
#: Replays of each form, with weights of their own.
_ROUNDS: Final = 2
_OF_CLASS: Final = ("accuracy", "f1", "roc_auc", "pr_auc", "log_loss", "brier")
#: Every metric of two classes.
METRICS: Final = (
    *_OF_CLASS,
    *("f1_macro", "f1_micro", "f1_weighted", "calibration_error"),
    *(f"{metric}_class_{label}" for metric in _OF_CLASS for label in (0, 1)),
)


def prediction_forms(work: Path, batches: int, rows: int, machine: Machine) -> Iterator[Figure]:
    """Bytes and evaluating of compact predictions against exact ones, and the largest difference of a score."""
    project = work / "forms"
    write_project(project, batches, rows)
    for form, seed in product(_FORMS, range(_ROUNDS)):
        content = pipeline_of(f"{form}_{seed}", batches * rows // _MODELS, batches) | {"seed": seed}
        content["evaluation"] |= {"matrix": "full", "predictions": form, "metrics": list(METRICS)}
        write_pipeline(project, content)
    found: dict[str, list[Replayed]] = {form: [] for form in _FORMS}
    differences: list[tuple[float, str]] = []
    with opened_project(project, work / "forms-home") as settings:
        for seed in range(_ROUNDS):
            # Each form is the first one as often as the other.
            for form in _FORMS if seed % 2 else reversed(_FORMS):
                found[form].append(replayed(settings, f"{form}_{seed}", machine))
            exact, compact = (_cells(settings, f"{form}_{seed}") for form in _FORMS)
            differences += [(abs(value - compact[cell]), cell[-1]) for cell, value in exact.items()]
    size = f"{batches} × {rows}, {found['exact'][0].triggers} models"
    for form, replays in found.items():
        goal = 2.0 if form == "compact" else None
        n_bytes = Spread.of([each.prediction_bytes / each.predictions for each in replays])
        yield Figure(f"D8.bytes.{form}", f"{size}: bytes a prediction, {form}", n_bytes, "bytes", goal, at_most=True)
    largest, metric = max(differences)
    what = f"largest difference of {len(differences)} scores, {len(METRICS)} metrics"
    yield Figure("D8.difference", what, Spread.of([largest]), "", 1e-3, at_most=True, note=f"of {metric}")
    pairs = list(zip(*found.values(), strict=True))
    seconds = Spread.of([compact.stages["evaluate"] / exact.stages["evaluate"] for exact, compact in pairs])
    yield Figure("D8.evaluate", "evaluating, compact over exact", seconds, "x")
    processor = Spread.of([compact.processor / exact.processor for exact, compact in pairs])
    yield Figure("D8.processor", "processor of the replay, compact over exact", processor, "x")


def _cells(settings: Settings, pipeline: str) -> dict[tuple[int, datetime, str], float]:
    """Defined scores of a pipeline's run."""
    with closing(Platform.open(settings)) as platform, platform.transaction() as conn:
        run = choose_run(conn, pipeline)
        if run is None:
            raise RuntimeError(f"{pipeline} has no run")
        cells = list_evaluations(conn, run.id)
    return {(c.ordinal, c.interval_start, c.metric): c.value for c in cells if c.value is not None}
