"""Confusion of a run: what its composite models predicted, from the files of predictions alone."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions, prediction_file
from modyn_dagster.evaluation import currently_active, read_predictions
from modyn_dagster.evaluation.composite.confusion import Confusion, RunConfusion
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.stages.evaluation.confusion import confusion_reader, run_confusion
from modyn_dagster.reporting.page.records import read_report
from modyn_dagster.reporting.summary import summarise_run
from tests.pipeline.deleting import delete
from tests.pipeline.world import World
from tests.projects.tiny import amount

TUMBLING = {"kind": "tumbling", "every": "2d", "start": "2024-01-01"}


def replayed(world_of: Any, matrix: str, **fields: Any) -> World:
    world: World = world_of(amount(evaluation={"intervals": TUMBLING, "metrics": ["accuracy"], "matrix": matrix, **fields}))
    world.deliver(range(6))
    world.replay("by_amount")
    return world


def confusion_of(world: World, **options: Any) -> RunConfusion:
    with world.platform.transaction() as conn:
        found = run_confusion(conn, world.platform, world.run("by_amount", "replay"), **options)
    assert found is not None
    return found


def counted(world: World) -> Counter[tuple[int, int]]:
    """Pairs of the currently active model, sample by sample."""
    run, pairs = world.run("by_amount", "replay"), Counter[tuple[int, int]]()
    with world.platform.transaction() as conn:
        models, cells = list_models(conn, run.id), list_evaluations(conn, run.id)
        files = [list_predictions(conn, model.trigger_id) for model in models]
    stored = [[read_predictions(world.platform.home / file.path, file.checksum) for file in each] for each in files]
    ends = np.array([as_datetime64(model.train_end) for model in models])
    for span in sorted({(as_datetime64(c.interval_start), as_datetime64(c.interval_end)) for c in cells}):
        [chosen] = currently_active(ends, np.array([span[0]]))
        for part in stored[chosen] if chosen >= 0 else []:
            inside = (part.times >= span[0]) & (part.times < span[1])
            pairs.update(zip(part.truth[inside].tolist(), part.outputs[inside].argmax(axis=1).tolist(), strict=True))
    return pairs


def pairs(confusion: Confusion) -> Counter[tuple[int, int]]:
    keys = zip(confusion.truth.tolist(), confusion.predicted.tolist(), strict=True)
    return Counter(dict(zip(keys, confusion.counts.tolist(), strict=True)))


@pytest.mark.soak("replays")
def test_the_active_models_predictions_are_counted_whatever_else_was_predicted(world_of):
    worlds = [replayed(world_of, matrix, predictions="exact") for matrix in ("composite", "full")]
    found = [confusion_of(world) for world in worlds]
    for world, confusion in zip(worlds, found, strict=True):
        active = confusion.composites["active"]
        assert pairs(active.confusion) == counted(world)
        assert 0 < active.n_intervals == active.n_scored
        with world.platform.transaction() as conn:
            summary = summarise_run(conn, world.run("by_amount", "replay"))
        right = sum(n for (truth, predicted), n in pairs(active.confusion).items() if truth == predicted)
        scored = [score for score in summary.active if score.value is not None and score.trigger is not None]
        assert right == pytest.approx(sum(float(score.value or 0) * int(score.n_samples or 0) for score in scored))


def test_deleted_samples_and_removed_predictions_do_not_count(world_of):
    world = replayed(world_of, "composite")
    before = confusion_of(world).composites["active"]
    delete(world, [key_of(5, row) for row in range(10)])
    after = confusion_of(world).composites["active"]
    assert after.confusion.n_samples == before.confusion.n_samples - 10
    assert confusion_of(world, most_bytes=0).composites["active"].n_intervals == 0
    with world.platform.transaction() as conn:
        conn.execute(sa.update(prediction_file).values(removed_at=sa.func.now()))
    removed = confusion_of(world).composites["active"]
    assert (removed.n_intervals, removed.n_scored) == (0, before.n_scored)


def test_a_file_that_is_damaged_costs_the_matrix_and_not_the_report(world_of, caplog):
    world = replayed(world_of, "composite")
    with world.platform.transaction() as conn:
        [path, *_] = [row.path for row in conn.execute(sa.select(prediction_file.c.path).order_by(prediction_file.c.id.desc()))]
    (world.platform.home / path).write_bytes(b"damaged")
    with world.platform.transaction() as conn:
        report = read_report(conn, ["by_amount"], title="t", confusion_of=confusion_reader(world.platform))
    assert report.pipelines[0].confusion is None
    assert "has no confusion matrix" in caplog.text
