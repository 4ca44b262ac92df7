"""Models judged on another dataset, on training sets, and on the spans between triggers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import read_predictions, score
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.keys import ORIGIN, KeyArray, KeyRange
from modyn_dagster.selection.training_set import TrainingSet
from modyn_dagster.spec.load import load_project
from tests.pipeline.deleting import SPLIT, delete
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount, batch_text, timed, write_pipeline, write_project

BETWEEN = {"kind": "between_triggers"}
TUMBLING = {"kind": "tumbling", "every": "2d", "start": "2024-01-01"}


def judged_on(data: Mapping[str, Any], name: str = "by_amount", **fields: Any) -> dict[str, Any]:
    evaluation = {
        "data": dict(data),
        "intervals": TUMBLING,
        "metrics": ["accuracy"],
        "matrix": "full",
        "predictions": "exact",
    } | fields
    return amount(name, evaluation=evaluation, selection={"limit": 50})


def add_dataset(folder: Path, **fields: Any) -> None:
    """A dataset ``other`` in a folder of its own, described as the first one."""
    content = yaml.safe_load((folder / "datasets" / f"{DATASET}.yaml").read_text())
    (folder / "other").mkdir()
    (folder / "datasets" / "other.yaml").write_text(yaml.safe_dump(content | {"name": "other", "root": "../other"} | fields))


def judge(world: World, *pipelines: dict[str, Any]) -> None:
    for content in pipelines:
        write_pipeline(world.folder, content)
    world.reload()


def deliver_other(world: World, days: range, **content: Any) -> None:
    for day in days:
        (world.folder / "other" / f"day_{day:02d}.csv").write_text(batch_text(day, **content))
    spec = world.platform.project.datasets["other"]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of("other"))


def cells(world: World, pipeline: str = "by_amount", mode: str = "replay") -> list[EvaluationRow]:
    run = world.run(pipeline, mode)
    with world.platform.transaction() as conn:
        return list_evaluations(conn, run.id)


def shown(rows: list[EvaluationRow]) -> list[tuple[Any, ...]]:
    return [(c.ordinal, c.interval_start, c.interval_end, c.n_samples, c.value) for c in rows]


def selected(world: World, pipeline: str = "by_amount", mode: str = "replay") -> list[KeyArray]:
    """Keys of the training sets of a run's models."""
    run = world.run(pipeline, mode)
    found = []
    with world.platform.transaction() as conn:
        for model in list_models(conn, run.id):
            row = find_training_set(conn, model.trigger_id)
            assert row is not None
            found.append(TrainingSet.open(world.platform.home / row.path, row.checksum).keys())
    return found


def assert_cells_are_of(world: World, keys: KeyArray) -> None:
    """Every cell is what its model's stored predictions say of the samples with these keys in its interval."""
    for cell in cells(world):
        with world.platform.transaction() as conn:
            [file] = list_predictions(conn, cell.trigger_id)
        stored = read_predictions(world.platform.home / file.path, file.checksum)
        inside = (stored.times >= as_datetime64(cell.interval_start)) & (stored.times < as_datetime64(cell.interval_end))
        inside &= np.isin(stored.keys, keys)
        assert (cell.n_samples, cell.value) == (
            inside.sum(),
            score("accuracy", stored.outputs[inside], stored.truth[inside]).value,
        )


@pytest.mark.soak("replays")
def test_a_dataset_with_the_same_samples_gives_the_same_cells(world_of):
    world = world_of()
    add_dataset(world.folder)
    judge(world, judged_on({"kind": "evaluate"}), judged_on({"kind": "dataset", "dataset": "other"}, "elsewhere"))
    world.deliver(range(6))
    deliver_other(world, range(6))
    world.replay("by_amount")
    world.replay("elsewhere")
    assert shown(cells(world, "elsewhere")) == shown(cells(world)) != []
    assert not any(cell.seen_in_training for cell in cells(world, "elsewhere"))
    assert any(cell.seen_in_training for cell in cells(world))


def test_a_dataset_has_its_own_times_samples_and_deletions(world_of):
    world = world_of()
    add_dataset(world.folder)
    judge(world, judged_on({"kind": "dataset", "dataset": "other"}))
    world.deliver(range(4))
    delete(world, range(40))
    deliver_other(world, range(8, 12), rows=20)
    world.replay("by_amount")
    found = {f"{cell.interval_start:%d}": (cell.n_samples, cell.n_deleted) for cell in cells(world)}
    assert found == {"09": (40, 0), "11": (40, 0)}


def test_classes_of_another_dataset_are_known_by_name(world_of):
    """The same samples, with the two classes listed the other way round: scores stay."""
    world = world_of()
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text())
    label = {"kind": "class", "from": {"source": "column", "column": "label"}}
    path.write_text(yaml.safe_dump(content | {"label": label | {"classes": ["0", "1"]}}))
    add_dataset(world.folder, label=label | {"classes": ["1", "0"]})
    judge(world, judged_on({"kind": "evaluate"}), judged_on({"kind": "dataset", "dataset": "other"}, "elsewhere"))
    world.deliver(range(4))
    deliver_other(world, range(4))
    world.replay("by_amount")
    world.replay("elsewhere")
    assert shown(cells(world, "elsewhere")) == shown(cells(world)) != []


def test_training_sets_are_what_was_trained_on_and_nothing_else(world_of):
    world = world_of(judged_on({"kind": "training_sets"}), split=SPLIT)
    world.deliver(range(8))
    world.replay("by_amount")
    keys = np.concatenate(selected(world))
    assert sum(cell.n_samples for cell in cells(world) if cell.ordinal == 0) == len(np.unique(keys))
    assert_cells_are_of(world, keys)
    assert any(cell.seen_in_training for cell in cells(world))


def test_spans_between_triggers_hold_every_training_sample_up_to_the_newest_trigger(world_of):
    world = world_of(judged_on({"kind": "trigger_spans"}, intervals=BETWEEN), split=SPLIT)
    world.deliver(range(8))
    world.replay("by_amount")
    view, run = world.platform.view(DATASET), world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
    keys = view.keys_on(TRAIN, KeyRange(ORIGIN, models[-1].key))
    assert len(keys) == 90 * len(models)
    assert_cells_are_of(world, keys)
    last = [cell for cell in cells(world) if cell.ordinal == models[-1].ordinal]
    assert [cell.n_samples for cell in last] == [90] * len(models)


@pytest.mark.soak("replays")
def test_spans_of_another_pipeline_are_those_of_its_triggers(world_of):
    world = world_of(timed(), judged_on({"kind": "trigger_spans", "pipeline": "by_time"}, intervals=BETWEEN))
    world.deliver(range(8))
    world.replay("by_amount")
    assert cells(world) == []
    world.replay("by_time")
    world.replay("by_amount")
    with world.platform.transaction() as conn:
        theirs = list_models(conn, world.run("by_time", "replay").id)
    ends = sorted({cell.interval_end for cell in cells(world)})
    assert [as_datetime64(end) - np.timedelta64(1, "us") for end in ends] == [as_datetime64(model.train_end) for model in theirs]
    spans = {cell.interval_start: cell.n_samples for cell in cells(world)}
    assert sum(spans.values()) == len(world.platform.view(DATASET).keys_on(TRAIN, KeyRange(ORIGIN, theirs[-1].key)))


@pytest.mark.soak("replays")
def test_new_training_sets_are_judged_when_they_come(world_of):
    world = world_of(judged_on({"kind": "training_sets"}))
    world.deliver(range(5))
    while (now := world.tick("by_amount")).train is not None:
        world.train("by_amount", now.train)
    run = world.run("by_amount", "live")
    assert [trigger.id for trigger in triggers_to_evaluate(world.platform, run)] == [
        t.id for t in world.triggers(run.id, "trained")
    ]
    world.live_until_idle("by_amount")
    assert triggers_to_evaluate(world.platform, run) == []
    before = sum(cell.n_samples for cell in cells(world, mode="live") if cell.ordinal == 0)
    world.deliver(range(5, 9))
    world.live_until_idle("by_amount")
    world.live_until_idle("by_amount")
    assert triggers_to_evaluate(world.platform, run) == []
    assert sum(cell.n_samples for cell in cells(world, mode="live") if cell.ordinal == 0) > before


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "dataset", "dataset": "nowhere"}, r"evaluation\.data\.dataset: must be a dataset .*nowhere"),
        ({"kind": "training_sets", "pipeline": "nobody"}, r"evaluation\.data\.pipeline: must be a pipeline .*nobody"),
        ({"kind": "trigger_spans", "pipeline": "nobody"}, r"evaluation\.data\.pipeline: must be a pipeline .*nobody"),
        ({"kind": "dataset", "dataset": "other"}, r"evaluation\.data\.dataset: other has a target as its label"),
        ({"kind": "dataset", "dataset": "bare"}, r"evaluation\.data\.dataset.*bare has no label"),
        ({"kind": "yesterday"}, r"evaluation\.data"),
        ({"kind": "dataset"}, r"evaluation\.data.*dataset"),
    ],
)
def test_what_cannot_be_judged_on_is_refused_by_name(tmp_path, data, field):
    folder = write_project(tmp_path / "project", [])
    write_pipeline(folder, judged_on(data))
    add_dataset(folder, label={"kind": "target", "from": {"source": "column", "column": "x"}})
    content = yaml.safe_load((folder / "datasets" / f"{DATASET}.yaml").read_text())
    (folder / "datasets" / "bare.yaml").write_text(yaml.safe_dump({**content, "name": "bare", "label": None}))
    with pytest.raises(ConfigError, match=field):
        load_project(folder)


def test_training_sets_that_retention_would_remove_are_refused(tmp_path):
    folder = write_project(tmp_path / "project", [])
    write_pipeline(folder, judged_on({"kind": "training_sets"}) | {"retention": {"training_sets": 2}})
    with pytest.raises(ConfigError, match=r"retention\.training_sets must be null"):
        load_project(folder)
