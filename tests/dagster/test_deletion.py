"""Deletions seen from Dagster: models are judged again, batches tell how much of them is left."""

from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from modyn_dagster.catalog.results.models import list_models, model_uses
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.ingestion.deletion.delete import delete_samples
from tests.dagster.face import Face, error_of
from tests.dagster.test_production import TRIGGERING, produce, take_in
from tests.projects.tiny import DATASET


def delete(face: Face, *keys: int) -> None:
    platform = face.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.array(keys, dtype=np.uint64))


@pytest.mark.soak("screens")
def test_after_each_deletion_all_models_are_judged_again_by_a_run_of_its_own(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    run_keys = []
    for key in (0, 1):
        delete(face, key)
        ticked = face.tick(TRIGGERING, cursor)
        [request] = ticked.requests
        run_keys.append(request.run_key)
        result = face.launch(request)
        assert result.success, error_of(result)
        settled = face.tick(TRIGGERING, ticked.cursor)
        assert "every model is judged" in str(settled.skipped)
        cursor = settled.cursor
        assert "nothing new" in str(face.tick(TRIGGERING, cursor).skipped)
    assert run_keys[0] != run_keys[1]


def test_a_batch_tells_how_many_of_its_samples_are_deleted(face: Face, days: list[str]) -> None:
    take_in(face)
    delete(face, 0, 7)
    result = face.materialize([DATASET, "samples"], partition=days[0])
    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["deleted_samples"].value == 2


@pytest.mark.soak("screens")
def test_the_job_shows_the_plan_and_executes_it_with_the_models_as_a_table(replayed_face: Face) -> None:
    face = replayed_face
    job = face.defs.resolve_job_def("delete_samples")

    def launch(**config: object) -> dict[str, Any]:
        ops = {"plan_and_delete": {"config": {"dataset": DATASET, **config}}}
        result = job.execute_in_process(run_config={"ops": ops}, instance=face.instance)
        [event] = [event for event in result.events_for_node("plan_and_delete") if event.event_type_value == "STEP_OUTPUT"]
        metadata = event.step_output_data.metadata
        return {
            name: value.records if isinstance(value, dg.TableMetadataValue) else value.value for name, value in metadata.items()
        }

    planned = launch(samples="0")
    assert (planned["request"], planned["samples"]) == (0, 1)
    assert next(batch.n_deleted for batch in face.platform.view(DATASET).batches) == 0
    done = launch(samples="0", execute=True)
    assert done["request"] > 0
    assert face.platform.view(DATASET).batches[0].n_deleted == 1
    assert done["document"]["finished_at"] is not None
    with face.platform.transaction() as conn:
        stored = {use.hash for use in model_uses(conn)}
    withdrawn = {record.data["model"] for record in done["models"]}
    assert stored.isdisjoint(withdrawn)
    assert launch(request=done["request"])["document"] == done["document"]
    assert {"salt", "keys"}.isdisjoint(done["document"])
    assert [sorted(batch) for batch in done["document"]["batches"]] == [["batch", "n_samples", "ordinal"]]
    condition = "time >= 2024-01-02T01:00:00Z and time <= 2024-01-02T01:00:00Z"
    assert "2024-01-02" not in str(launch(by="where", samples=condition)["document"]["selection"])
    reported = launch(request=done["request"], report=True)
    assert [reported[name] for name in ("files_with_their_bytes", "originals_with_their_bytes", "not_read")] == [0, 1, 0]
    assert "Deletion 1 of" in Path(reported["report"]).read_text()


@pytest.mark.soak("screens")
def test_a_live_run_that_a_job_has_decided_anew_goes_on_through_its_sensor(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    with face.platform.transaction() as conn:
        [old] = list_runs(conn)
    ops = {"plan_and_delete": {"config": {"dataset": DATASET, "samples": "3-9", "decisions": "as_if_deleted", "execute": True}}}
    assert face.defs.resolve_job_def("delete_samples").execute_in_process(run_config={"ops": ops}, instance=face.instance).success
    _, asked = produce(face, cursor)
    assert asked
    shown = face.materialize([old.pipeline, "replay"], batches=(days[0], days[-1]), config={"as_if_deleted": True})
    assert shown.success, error_of(shown)
    with face.platform.transaction() as conn:
        _, new, replay = list_runs(conn)
        live, expected = ([(model.key, model.hash) for model in list_models(conn, run.id)] for run in (new, replay))
        assert list_models(conn, old.id) == []
    assert live == expected != []
    assert new.hole_set_id == replay.hole_set_id is not None
