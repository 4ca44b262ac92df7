"""Aliases in MLflow that a person has moved: they stay, and are shown as drift, until they are deleted."""

import pytest
from mlflow import MlflowClient

from modyn_dagster.reporting.mlflow.registry.aliases import DRIFT, RECORDED, SET, AliasMoves
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story
from tests.reporting.test_registered_models import alias, client, live, trained
from tests.variants import represented

__all__ = ["client", "live"]


def aliases(client: MlflowClient, story: Story) -> dict[str, str]:
    return {which: str(number) for which, number in client.get_registered_model(story.pipeline).aliases.items()}


def forget_records(client: MlflowClient, story: Story) -> None:
    """Leave aliases as they were before there were records."""
    for tag in client.get_registered_model(story.pipeline).tags:
        if tag.startswith(f"{SET}/") or tag in RECORDED:
            client.delete_registered_model_tag(story.pipeline, tag)


def test_a_sync_says_which_aliases_it_has_moved_and_which_a_person_holds_elsewhere(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    trained(live, [0.9, 0.5])
    assert tracker.sync_models(live.engine, live.run) == AliasMoves({"current": "2", "champion": "1", "live": "2"}, [])
    assert tracker.sync_models(live.engine, live.run) == AliasMoves({}, [])
    client.set_registered_model_alias(live.pipeline, "champion", "2")
    client.delete_registered_model_alias(live.pipeline, "live")
    moves = tracker.sync_models(live.engine, live.run)
    assert moves is not None
    [drift] = moves.drifts
    assert (moves.moved, alias(client, live.pipeline, "champion")) == ({"live": "2"}, live_key(live, 1))
    assert "alias champion was moved by hand to version 2; by the catalog it is version 1" in drift
    assert client.get_registered_model(live.pipeline).tags[f"{DRIFT}/champion"] == drift


def live_key(story: Story, ordinal: int) -> str:
    return f"{story.run.id:06}-{ordinal:06}"


@represented("by_hand", {"of the pipeline": True, "of a person": False}, "screens", "of the pipeline")
def test_an_alias_that_a_person_set_before_the_first_sync_stays(
    tracker: Tracker, client: MlflowClient, live: Story, by_hand: bool
) -> None:
    # The registered model is that of an earlier sync, or one that a person made.
    if by_hand:
        client.create_registered_model(live.pipeline, {"modyn/pipeline": live.pipeline, **RECORDED})
    else:
        client.create_registered_model(live.pipeline)
    client.create_model_version(live.pipeline, "modyn-model:///by-hand", await_creation_for=0)
    client.set_registered_model_alias(live.pipeline, "champion", "1")
    trained(live, [0.5])
    moves = tracker.sync_models(live.engine, live.run)
    assert moves is not None
    assert [f"{live.pipeline}: alias champion was moved by hand to version 1" in drift for drift in moves.drifts] == [True]
    assert aliases(client, live) == {"champion": "1", "current": "2", "live": "2"}


@represented(
    "found",
    {
        # Champion before, and model that was never champion, of the newest of four; and one registered by hand.
        "an earlier champion": ("champion", "1", True),
        "a model that was no champion": ("champion", "2", False),
        "an older model": ("current", "2", True),
        "a version of a person": ("current", "4", False),
        "an alias that is younger than the records": ("live", "2", False),
    },
    "screens",
    "a model that was no champion",
)
def test_an_alias_from_before_the_records_is_moved_only_from_a_version_that_a_sync_may_have_set_it_to(
    tracker: Tracker,
    client: MlflowClient,
    live: Story,
    found: tuple[str, str, bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    which, number, is_moved = found
    trained(live, [0.8, 0.5, 0.9])
    tracker.sync_models(live.engine, live.run)
    client.create_model_version(live.pipeline, "modyn-model:///by-hand", await_creation_for=0)
    client.set_registered_model_alias(live.pipeline, which, number)
    forget_records(client, live)
    moves = tracker.sync_models(live.engine, live.run)
    assert moves is not None
    assert (moves.moved, len(moves.drifts)) == (({which: "3"}, 0) if is_moved else ({}, 1))
    assert aliases(client, live)[which] == ("3" if is_moved else number)
    assert f"alias {which} " in caplog.text, "nothing is overwritten without a word"
    # From then on every alias has its record.
    client.set_registered_model_alias(live.pipeline, "current", "1")
    again = tracker.sync_models(live.engine, live.run)
    assert again is not None
    assert any("alias current was moved by hand to version 1" in drift for drift in again.drifts)
