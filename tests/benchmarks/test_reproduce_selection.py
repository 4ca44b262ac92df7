"""Selection policies against full data: pipelines that the platform takes, fair steps, and runs that go on where they broke."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.reproduce_selection import figures, scores_of
from benchmarks.selection_policies import BATCH, FULL, NINE, POLICIES
from benchmarks.selection_runs import Result, pipeline, plan, read_results
from benchmarks.selection_streams import Stream
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec

DAY = 86_400
MLP = {"model": {"name": "mlp"}, "features": ["x"], "epochs": 5}


def pictures(n: int) -> Stream:
    samples = np.arange(4 * n, dtype=np.uint8).reshape(n, 4)
    return Stream("tiny", np.arange(n, dtype=np.int64) * DAY, np.arange(n, dtype=np.int64) % 3, samples, "10d", MLP)


def result(policy: str, ratio: float, seed: int, *series: float | None) -> Result:
    return Result("tiny", policy, ratio, seed, "accuracy", list(series), 10, 0.5, 1.0)


@pytest.mark.parametrize("ratio", [0.5, 0.25, 0.125])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_makes_a_pipeline_of_as_many_steps(name: str, ratio: float) -> None:
    """As many samples for either way of choosing: larger batches where batches are chosen from, else a smaller set."""
    spec = PipelineSpec.model_validate(pipeline("tiny__x", pictures(30), POLICIES[name], ratio))
    training, strategy = spec.training, spec.selection.strategy
    if training.downsampling is None:
        assert training.batch_size == BATCH
        assert getattr(strategy, "ratio", None) == (None if name == FULL.name else ratio)
    else:
        share = ratio if training.downsampling.mode == "batch_then_sample" else 1.0
        assert training.batch_size * share == BATCH
        assert training.downsampling.ratio == ratio
    assert training.use_previous_model
    assert spec.evaluation.matrix == "trained"


def test_the_nine_are_those_of_the_paper() -> None:
    assert len(NINE) == 9
    assert FULL not in NINE


def test_files_hold_the_stream_in_order_and_the_dataset_is_valid(tmp_path) -> None:
    stream = pictures(35)
    assert stream.write(tmp_path / "data") == 4
    dtype = np.dtype([("time", "<i8"), ("label", "<i8"), ("x", "u1", (4,))])
    rows = np.concatenate([np.fromfile(path, dtype) for path in sorted((tmp_path / "data").iterdir())])
    assert rows["time"].tolist() == stream.times.tolist()
    assert rows["x"].tolist() == stream.samples.tolist()
    DatasetSpec.model_validate(stream.dataset(tmp_path / "data"))


def test_what_is_done_is_read_back_and_the_largest_ratio_comes_first(tmp_path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    done = [result("uniform", 0.5, 0, 0.1, 0.8), result("margin", 0.5, 0, 0.2, None, 0.6)]
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in done))
    assert read_results(path) == done
    wanted = plan(["uniform", "margin"], [0.5, 0.25], [0, 1])
    assert len(wanted) == len(set(wanted)) == 2 + 2 * 2 * 2
    assert [one.ratio for one in wanted] == sorted((one.ratio for one in wanted), reverse=True)
    assert {one.wanted for one in done} <= set(wanted)


def test_scores_leave_the_first_trigger_out_and_full_data_is_the_goal() -> None:
    found = [
        result("uniform", 0.5, 0, 0.1, 0.8, None, 0.6),
        result("uniform", 0.5, 1, 0.1, 0.5),
        result(FULL.name, 1.0, 0, 0.0, 0.9),
    ]
    scores = scores_of(found)
    assert scores["tiny", "uniform", 0.5] == pytest.approx([0.7, 0.5])
    listed = {figure.id: figure for figure in figures(scores)}
    assert listed["tiny.uniform.500.score"].spread is not None
    assert listed["tiny.uniform.500.score"].spread.value == pytest.approx(0.6)
    assert listed["tiny.uniform.500.score"].goal == pytest.approx(0.9)
    assert listed["tiny.full_data.1000.score"].goal is None
