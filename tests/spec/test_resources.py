"""Resources of stages: no part of a run's identity, and refused where they contradict what the pipeline does."""

from typing import Any

import pytest

from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError
from modyn_dagster.resources.run_classes import STAGES, share_of
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.operation import ResourcesSpec, StageResources
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.projects.tiny import amount


def pipeline(**fields: Any) -> PipelineSpec:
    content = amount()
    content["training"] |= fields.pop("training", {})
    return parse_spec(content | fields, PipelineSpec, source="pipeline")


def test_resources_change_no_hash() -> None:
    plain, named = pipeline(), pipeline(resources={"train": {"cpus": 4, "memory": "8GB"}, "evaluate": {}})
    assert spec_hash(plain) == spec_hash(named)
    assert "resources" not in plain.model_dump(mode="json")


def test_a_run_reserves_the_largest_number_of_its_stages() -> None:
    resources = ResourcesSpec(
        train=StageResources(gpus=1, memory="2GB"), measure=StageResources(cpus=3), evaluate=StageResources(memory="500MB")
    )
    assert resources.of(STAGES["training"], 2) == Resources(2, 1, 2 * 10**9)
    assert resources.of(STAGES["evaluation"], 2) == Resources(2, 0, 5 * 10**8)
    assert resources.of(STAGES["measuring"], 2) == Resources(3, 0, 0)
    assert resources.of(STAGES["replay"], 2) == Resources(3, 1, 2 * 10**9)


def test_a_pipeline_that_names_none_reserves_none() -> None:
    assert all(pipeline(threads=2).resources.of(stages, 2) is None for stages in STAGES.values())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threads": 2, "resources": {"measure": {"cpus": 1}}}, "resources.measure.cpus must be at least threads, 2"),
        ({"resources": {"train": {"gpus": 1}}}, "resources.train.gpus needs training.device cuda or auto"),
        ({"resources": {"train": {"memory": "2 GB"}}}, "must be a whole number and a unit: 500MB, 4GB or 1TB"),
        ({"resources": {"train": {"memory": "0GB"}}}, "must be a whole number and a unit"),
        ({"resources": {"select": {}}}, "resources.select"),
        ({"resources": {"train": {"gpus": -1}}}, "resources.train.gpus"),
    ],
)
def test_what_contradicts_the_pipeline_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pipeline(**fields)
    assert words in str(caught.value)


def test_gpus_go_with_a_device_that_may_be_one() -> None:
    spec = pipeline(training={"device": "auto"}, resources={"train": {"gpus": 2}})
    assert spec.resources.of(STAGES["training"], spec.threads) == Resources(1, 2, 0)


def test_ranks_on_a_cluster_are_not_reserved_for_a_second_time_by_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"device": "auto", "ranks": 4}
    plain = pipeline(threads=2, training=training, resources={"train": {"gpus": 4}, "evaluate": {"cpus": 3}})
    named = pipeline(threads=2, training=training, resources={"train": {"cpus": 10, "gpus": 5, "memory": "2GB"}})
    without = pipeline(threads=2, training=training, resources={"evaluate": {"gpus": 1}})
    monkeypatch.setenv("MODYN_RANKS", "processes")
    assert share_of(STAGES["replay"], plain) == Resources(8, 4, 0)
    assert share_of(STAGES["replay"], named) == Resources(10, 5, 2 * 10**9)
    # All four reserve two cores and a GPU each where they are placed; the run keeps as much for what it computes itself.
    monkeypatch.setenv("MODYN_RANKS", "ray:auto")
    assert share_of(STAGES["replay"], plain) == Resources(3, 1, 0)
    assert share_of(STAGES["replay"], named) == Resources(4, 2, 2 * 10**9)
    assert share_of(STAGES["evaluation"], plain) == Resources(3, 0, 0)
    assert share_of(STAGES["replay"], without) == Resources(2, 1, 0)
