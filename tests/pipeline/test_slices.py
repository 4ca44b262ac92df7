"""Cells of slices and confidence intervals: stored with every cell, equal to what the plain functions say."""

from typing import Any

import numpy as np
import pytest
import yaml
from dagster import AssetKey

from modyn_dagster.assets.metadata.stages import stage_metadata
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import Predictions, confidence_interval, read_predictions, score, wilson
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.keys import positions_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.trigger_stages import recorded_stages
from modyn_dagster.reporting.page.records import read_report
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.spec.load import load_project
from tests.pipeline.deleting import delete
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount, batch_text, drop, write_pipeline, write_project

TUMBLING = {"kind": "tumbling", "every": "2d", "start": "2024-01-01"}
SCHOOLS = ("Fisk, Nashville", "MIT", "Žižkov=1")


def judged_by(**fields: Any) -> dict[str, Any]:
    metrics = ["accuracy", "log_loss", "accuracy_class_1"]
    return amount(evaluation={"intervals": TUMBLING, "metrics": metrics, "matrix": "full", "predictions": "exact", **fields})


def with_schools(text: str) -> str:
    """Every sample of a batch belongs to a school; which one follows from its place."""
    header, *rows = text.splitlines()
    return "\n".join([f"{header},school", *(f'{row},"{SCHOOLS[i % 3]}"' for i, row in enumerate(rows)), ""])


def deliver(world: World, days: range) -> None:
    for day in days:
        drop(world.folder, f"day_{day:02d}", with_schools(batch_text(day)))
    spec = world.platform.project.datasets[DATASET]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(DATASET))


def cells(world: World) -> list[EvaluationRow]:
    with world.platform.transaction() as conn:
        return list_evaluations(conn, world.run("by_amount", "replay").id, subsets=True)


def predictions_of(world: World, cell: EvaluationRow) -> Predictions:
    """Predictions of the model for the samples of a cell: of its interval and slice."""
    with world.platform.transaction() as conn:
        [file] = list_predictions(conn, cell.trigger_id)
    stored = read_predictions(world.platform.home / file.path, file.checksum)
    inside = (stored.times >= as_datetime64(cell.interval_start)) & (stored.times < as_datetime64(cell.interval_end))
    name, _, value = cell.subset.partition("=")
    if name == "school":
        inside &= positions_of(stored.keys) % 3 == SCHOOLS.index(value)
    if name == "label":
        inside &= stored.truth == int(value)
    return stored.take(np.flatnonzero(inside))


def test_every_slice_is_judged_apart_and_all_samples_together(world_of):
    world = world_of(judged_by(slices=["school", "label"]), attributes=("school",))
    deliver(world, range(6))
    world.replay("by_amount")
    found = cells(world)
    assert {cell.subset for cell in found} == {"", *(f"school={school}" for school in SCHOOLS), "label=0", "label=1"}
    for cell in found:
        part = predictions_of(world, cell)
        judged = score(cell.metric, part.outputs, part.truth)
        assert (cell.n_samples, cell.value, cell.undefined) == (len(part), judged.value, judged.reason)
    whole = [cell for cell in found if cell.subset == ""]
    assert len(found) == 6 * len(whole)


def test_confidence_intervals_are_those_of_the_samples_of_the_cell(world_of):
    confidence: dict[str, Any] = {"level": 0.9, "resamples": 40}
    world = world_of(judged_by(slices=["school"], confidence=confidence), attributes=("school",))
    deliver(world, range(4))
    world.replay("by_amount")
    assert len(cells(world)) > 8
    for cell in cells(world):
        part = predictions_of(world, cell)
        ends = confidence_interval(cell.metric, part.outputs, part.truth, **confidence)
        assert ends is not None
        assert (cell.low, cell.high) == (ends.low, ends.high)
        assert cell.value is not None
        assert ends.low <= cell.value <= ends.high


def test_without_resamples_only_shares_have_one(world_of):
    world = world_of(judged_by())
    world.deliver(range(4))
    world.replay("by_amount")
    for cell in cells(world):
        part = predictions_of(world, cell)
        right = part.outputs.argmax(axis=1) == part.truth
        of = {"accuracy": right, "accuracy_class_1": right[part.truth == 1]}.get(cell.metric)
        expected = (None, None) if of is None else wilson(int(of.sum()), len(of))[:2]
        assert (cell.low, cell.high) == expected


@pytest.mark.soak("replays")
def test_a_slice_that_loses_its_samples_loses_its_cells(world_of):
    world = world_of(judged_by(slices=["school"]), attributes=("school",))
    deliver(world, range(4))
    world.replay("by_amount")
    kept = {cell.subset for cell in cells(world) if f"{cell.interval_start:%d}" == "01"}
    assert "school=MIT" in kept
    delete(world, [day << 32 | position for day in (0, 1) for position in range(1, ROWS, 3)])
    world.replay("by_amount")
    assert {cell.subset for cell in cells(world) if f"{cell.interval_start:%d}" == "01"} == kept - {"school=MIT"}
    assert "school=MIT" in {cell.subset for cell in cells(world)}


def test_classes_are_named_as_the_dataset_names_them(world_of):
    world = world_of()
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    label = {"kind": "class", "from": {"source": "column", "column": "label"}, "classes": ["0", "1"]}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"label": label}))
    write_pipeline(world.folder, judged_by(slices=["label"]))
    world.reload()
    world.deliver(range(3))
    world.replay("by_amount")
    assert {cell.subset for cell in cells(world)} == {"", "label=0", "label=1"}


def test_the_report_shows_slices_confidence_and_the_bytes_on_disk(world_of):
    world = world_of(judged_by(slices=["school"]), attributes=("school",))
    deliver(world, range(4))
    world.replay("by_amount")
    with world.platform.transaction() as conn:
        [record] = read_report(conn, ["by_amount"], title="t").pipelines
    assert list(record.slices) == [f"school={school}" for school in SCHOOLS]
    shown = {"value": {"": record.matrices, **record.slices}, "low": {"": record.lows}, "high": {"": record.highs}}
    assert record.lows.keys() == record.highs.keys() == {"accuracy", "accuracy_class_1"}
    starts = sorted({cell.interval_start for cell in cells(world)})
    for cell in cells(world):
        for what, matrices in shown.items():
            if cell.metric in matrices.get(cell.subset, {}):
                found = matrices[cell.subset][cell.metric][cell.ordinal, starts.index(cell.interval_start)]
                assert found == getattr(cell, what)
    written = [path for part in ("training_sets", "predictions") for path in (world.platform.home / part).rglob("*.arrow")]
    with world.platform.transaction() as conn:
        models = list_models(conn, world.run("by_amount", "replay").id)
        summary = summarise_run(conn, world.run("by_amount", "replay"))
    saved = sum(world.platform.model_store.size(model.hash) for model in models)
    assert summary.n_bytes == record.n_bytes == sum(path.stat().st_size for path in written) + saved


def test_dagsters_page_of_an_evaluation_has_the_slices_of_its_model(world_of):
    world = world_of(judged_by(slices=["school"]), attributes=("school",))
    deliver(world, range(4))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        *_, last = list_triggers(conn, run.id)
    context = context_of(world.platform, run.pipeline, last.partition_key, world.platform.view(DATASET))
    *_, stage = recorded_stages(context)
    metadata = stage_metadata(stage, AssetKey(["by_amount", "evaluation"]))
    own = [cell for cell in cells(world) if cell.trigger_id == last.id and cell.subset]
    assert own
    for cell in own:
        if cell.value is not None:
            assert f"| {cell.subset} | {cell.n_samples} |" in metadata["slice_scores"].value
            assert f"{cell.value:.4f}" in metadata["slice_scores"].value
    assert all(f"| {subset} | 2 |" in metadata["slices"].value for subset in {cell.subset for cell in own})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slices": ["school"]}, r"evaluation\.slices\.0: must be an attribute of tiny, or label .*found 'school'"),
        ({"slices": ["label", "label"]}, r"evaluation: slices must not repeat"),
        ({"confidence": {"level": 1}}, r"evaluation\.confidence\.level"),
        ({"confidence": {"resamples": -1}}, r"evaluation\.confidence\.resamples"),
    ],
)
def test_what_cannot_be_sliced_or_sure_is_refused_by_name(tmp_path, fields, message):
    folder = write_project(tmp_path / "project", [judged_by(**fields)])
    with pytest.raises(ConfigError, match=message):
        load_project(folder)
