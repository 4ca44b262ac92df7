"""Compact predictions of the full matrix: scores within a thousandth, exact ones beside them, files that other views made."""

from dataclasses import replace
from typing import Any

import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.predictions import PredictionFileRow, list_predictions
from modyn_dagster.pipeline.context import trained_contexts
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import with_full_matrix
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.deleting import delete
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, exact

METRICS = ["accuracy", "f1", "roc_auc", "pr_auc", "log_loss", "brier", "calibration_error"]
SOAK = pytest.mark.soak("laws-results")
Cells = dict[tuple[Any, ...], float | None]


def judged_by(name: str = "by_amount", matrix: str = "full", **fields: Any) -> Content:
    intervals = {"kind": "sliding", "every": "1d", "length": "3d"}
    return amount(name, evaluation={"intervals": intervals, "metrics": METRICS, "matrix": matrix}, **fields)


def cells_of(world: World, name: str, mode: str = "replay") -> Cells:
    run = world.run(name, mode)
    with world.platform.transaction() as conn:
        return {(c.ordinal, c.interval_start, c.interval_end, c.metric): c.value for c in list_evaluations(conn, run.id)}


def files_of(world: World, name: str) -> list[PredictionFileRow]:
    run = world.run(name, "replay")
    with world.platform.transaction() as conn:
        return [file for trigger in world.triggers(run.id, "trained") for file in list_predictions(conn, trigger.id)]


def suffixes(files: list[PredictionFileRow]) -> set[str]:
    return {file.path.rpartition(".")[2] for file in files}


def assert_close(found: Cells, expected: Cells) -> None:
    assert found.keys() == expected.keys()
    for cell, value in expected.items():
        other = found[cell]
        assert (other is None) == (value is None), cell
        if other is not None and value is not None:
            assert abs(other - value) <= (0 if cell[-1] in ("accuracy", "f1") else 1e-3 * max(1, value)), cell


@pytest.mark.soak("replays")
def test_scores_of_compact_predictions_are_within_a_thousandth_and_shared_with_no_exact_ones(world_of):
    world = world_of(exact(judged_by("exact")), judged_by("compact"))
    world.deliver(range(6))
    for name in ("exact", "compact"):
        world.replay(name)
    assert (suffixes(files_of(world, "exact")), suffixes(files_of(world, "compact"))) == ({"arrow"}, {"codes"})
    one, other = cells_of(world, "exact"), cells_of(world, "compact")
    assert_close(other, one)
    assert one != other
    for file in files_of(world, "compact"):
        assert (world.platform.home / file.path).stat().st_size < 2 * file.n_samples + 80


@pytest.mark.soak("replays")
@pytest.mark.parametrize("deleted", [False, pytest.param(True, marks=SOAK)])
def test_live_scores_are_those_of_a_replay_whatever_files_the_predictions_lie_in(world_of, deleted):
    world = world_of(judged_by())
    for day in range(6):
        world.deliver([day])
        if deleted:
            delete(world, [day << 32 | 7, day << 32 | 8])
        world.live_until_idle("by_amount")
    world.replay("by_amount")
    live, replayed = cells_of(world, "by_amount", "live"), cells_of(world, "by_amount")
    assert live
    if not deleted:
        assert live == {cell: replayed[cell] for cell in live}
    else:
        assert_close({cell: replayed[cell] for cell in live}, live)


@pytest.mark.soak("replays")
def test_a_completed_matrix_keeps_exact_predictions_beside_compact_ones(world_of):
    world = world_of(judged_by(matrix="composite"), exact(judged_by("whole")))
    world.deliver(range(6))
    for name in ("whole", "by_amount"):
        world.replay(name)
    run, before, files = world.run("by_amount", "replay"), cells_of(world, "by_amount"), files_of(world, "by_amount")
    assert suffixes(files) == {"arrow"}
    for _ in range(2):
        for context in trained_contexts(world.platform, run, world.platform.view(DATASET)):
            evaluation_stage(with_full_matrix(context), finished=True)
    after = cells_of(world, "by_amount")
    assert after | before == after
    assert_close(after, cells_of(world, "whole"))
    assert [file for file in files_of(world, "by_amount") if file in files] == files
    assert suffixes(files_of(world, "by_amount")) == {"arrow", "codes"}


@SOAK
def test_an_evaluation_of_an_earlier_view_leaves_files_that_reach_further_as_they_are(world_of, caplog):
    world = world_of(judged_by())
    world.deliver(range(6))
    world.replay("by_amount")
    run, files, before = world.run("by_amount", "replay"), files_of(world, "by_amount"), cells_of(world, "by_amount")
    for context in trained_contexts(world.platform, run, world.platform.view(DATASET)):
        evaluation_stage(replace(context, view=context.view.up_to(3)), finished=False)
    assert files_of(world, "by_amount") == files
    assert cells_of(world, "by_amount") == before
    assert caplog.messages == []


@SOAK
def test_a_file_of_other_samples_than_its_name_says_is_made_again(world_of, caplog):
    world = world_of(judged_by())
    world.deliver(range(6))
    world.replay("by_amount")
    before, [file, other, *_] = cells_of(world, "by_amount"), files_of(world, "by_amount")
    home = world.platform.home
    sound = (home / file.path).read_bytes()
    (home / file.path).write_bytes((home / other.path).read_bytes())
    world.replay("by_amount")
    assert "expected checksum" in caplog.text
    assert (home / file.path).read_bytes() == sound
    assert cells_of(world, "by_amount") == before


@pytest.mark.parametrize("matrix", ["composite", *(pytest.param(matrix, marks=SOAK) for matrix in ("active", "trained", "lazy"))])
def test_predictions_of_any_other_matrix_are_exact(world_of, matrix):
    world = world_of(judged_by(matrix=matrix))
    world.deliver(range(4))
    world.replay("by_amount")
    assert suffixes(files_of(world, "by_amount")) <= {"arrow"}


def test_a_spec_that_asks_for_the_default_form_is_stored_as_before():
    content = judged_by()
    asked = content | {"evaluation": content["evaluation"] | {"predictions": "compact"}}
    one, other = (parse_spec(each, PipelineSpec, source="p.yaml").model_dump(mode="json") for each in (content, asked))
    assert one == other
    assert "predictions" not in one["evaluation"]
