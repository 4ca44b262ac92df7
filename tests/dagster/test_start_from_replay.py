"""A live run that took over a replay, as Dagster shows it and goes on with it."""

from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.start_live import start_live
from modyn_dagster.pipeline.replay.walk import replay
from tests.dagster.face import Face, error_of

TRIGGERING = "triggering__by_amount"


def test_its_triggers_are_shown_with_the_first_evaluation_and_the_next_ones_follow(face: Face, ingested: list[str]) -> None:
    for _ in replay(face.platform, ReplayRequest("by_amount", ingested[:2], "dagster-run")):
        pass
    run = start_live(face.platform, "by_amount", 1).run
    cursor, asked = None, []
    while (ticked := face.tick(TRIGGERING, cursor)).requests:
        [request], cursor = ticked.requests, ticked.cursor
        assert str(request.partition_key) in face.partitions("triggers/by_amount")
        result = face.launch(request)
        assert result.success, error_of(result)
        asked.append(request.job_name)
    with face.platform.transaction() as conn:
        keys = [trigger.partition_key for trigger in list_triggers(conn, run.id)]
    assert len(keys) == 2
    assert asked[0] == "train__by_amount"
    assert set(keys) <= set(face.partitions("triggers/by_amount"))
    for asset in ("training_set", "model", "evaluation"):
        shown = face.materializations("by_amount", asset)
        assert {key for key in shown if str(key).startswith(f"{run.id:06d}")} == set(keys)
