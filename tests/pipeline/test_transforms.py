"""Pipelines with transforms: live equals replay, models are judged by what they learnt, and other code counts as other."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.predictions.files import read_predictions
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.test_same_cells import judged_again, passes
from tests.projects.tiny import DATASET, amount, exact, triggered

CODE = """
def jitter(inputs, *, rng):
    return inputs + rng.normal(0, 0.1, inputs.shape).astype("float32")


def scaled(inputs):
    return inputs * 2
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "code" / "own_transforms.py"
    path.parent.mkdir()
    path.write_text(CODE)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.delitem(sys.modules, "own_transforms", raising=False)
    return path


def transformed(content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    listed = [{"function": "own_transforms:jitter", "when": "train"}, {"function": "own_transforms:scaled", "draws": False}]
    content["training"] |= {"transforms": listed} | fields
    return content


BY_ACCURACY = {"kind": "performance", "every": 40, "decision": {"rule": "threshold", "value": 0.9}}


@pytest.mark.soak("replays")
@pytest.mark.parametrize("content", [amount(every=60), triggered("by_accuracy", BY_ACCURACY)])
def test_live_equals_replay(world_of, own_code, content):
    world = world_of(transformed(content, label_transform={"positive": [0]}))
    for days in ([0, 1], [2], [3, 4]):
        world.deliver(days)
        world.live_until_idle(content["name"])
    list(finish_live_run(world.platform, world.run(content["name"], "live")))
    world.replay(content["name"])
    live, replayed = (world.outcome(world.run(content["name"], mode)) for mode in ("live", "replay"))
    assert len(live["models"]) > 1
    assert live == replayed
    rows = world.decisions(world.run(content["name"], "live"))
    scores = [score for *_, score, threshold, _ in rows if threshold is not None]
    assert not scores or np.mean(scores) > 0.6, "measured by them, too"
    scores = [value for *_, metric, _, value, _ in live["evaluations"] if metric == "accuracy"]
    assert np.mean([score for score in scores if score is not None]) > 0.6, "judged by the labels that were learnt"


def test_predictions_hold_the_labels_that_were_learnt(world_of):
    content = amount()
    content["training"]["label_transform"] = {"groups": [[1], [0]]}
    content["evaluation"]["slices"] = ["label"]
    world = world_of(content, exact(amount("plain")))
    world.deliver(range(3))
    truths = []
    for name in ("by_amount", "plain"):
        world.replay(name)
        run = world.run(name, "replay")
        with world.platform.transaction() as conn:
            [file] = list_predictions(conn, world.triggers(run.id, "trained")[0].id)
        truths.append(read_predictions(world.platform.home / file.path, file.checksum).truth)
    assert truths[0].tolist() == (1 - truths[1]).tolist()
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, world.run("by_amount", "replay").id, subsets=True)
    assert {cell.subset for cell in cells} == {"", "label=0", "label=1"}


def test_other_code_of_a_transform_makes_new_predictions_and_cells(world_of, own_code):
    world = world_of(transformed(amount()))
    world.deliver(range(5))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    assert triggers_to_evaluate(world.platform, run) == []
    trigger = world.triggers(run.id, "trained")[0]
    with world.platform.transaction() as conn:
        before = list_evaluations(conn, run.id, trigger.id)
    spent = passes(world)
    own_code.write_text(CODE.replace("inputs * 2", "inputs * -2"))
    sys.modules.pop("own_transforms")
    assert trigger.id in {due.id for due in triggers_to_evaluate(world.platform, run)}
    assert judged_again(world, trigger.partition_key)
    with world.platform.transaction() as conn:
        after = list_evaluations(conn, run.id, trigger.id)
    assert passes(world) > spent
    assert {cell.address for cell in before}.isdisjoint(cell.address for cell in after)
    both = [(one.value, other.value) for one, other in zip(before, after) if one.metric == "accuracy" and one.value is not None]
    assert both
    assert all(other == pytest.approx(1 - one, abs=0.4) for one, other in both)
    assert not judged_again(world, trigger.partition_key)


def test_what_a_pipeline_cannot_learn_is_refused_before_it_runs(world_of):
    content = amount()
    content["training"]["label_transform"] = {"above": 0.5}
    world = world_of(content)
    with pytest.raises(ConfigError, match=r"label_transform\.above"):
        require_runnable(world.platform.pipeline("by_amount"), world.platform.project.datasets[DATASET])
