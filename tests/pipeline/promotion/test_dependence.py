"""Pipelines whose decisions depend on the champion: each batch then waits for the look at the batch before."""

import pytest

from modyn_dagster.pipeline.measure.dependence import champion_decides
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.measuring import performance
from tests.projects.tiny import Content, amount


@pytest.mark.parametrize(
    ("content", "live", "start", "decides"),
    [
        (amount(), None, False, False),
        (amount(), None, "newest", False),
        (amount(), None, "champion", True),
        (performance(), None, False, True),
        (performance(), "champion", False, True),
        (performance(), "newest", False, False),
        (performance(), "newest", "champion", True),
    ],
)
def test_decisions_depend_on_the_champion_that_triggers_judge_or_trainings_start_from(
    content: Content, live: str | None, start: object, decides: bool
) -> None:
    training = content["training"] | {"use_previous_model": start}
    spec = parse_spec(content | {"promotion": {}, "live": live, "training": training}, PipelineSpec, source="p")
    assert champion_decides(spec) == decides
    assert not champion_decides(spec.model_copy(update={"promotion": None}))
