"""Deletions seen from Dagster: models are judged again, batches tell how much of them is left."""

import numpy as np

from modyn_dagster.ingestion.deletion.delete import delete_samples
from tests.dagster.face import Face, error_of
from tests.dagster.test_production import TRIGGERING, produce, take_in
from tests.projects.tiny import DATASET


def delete(face: Face, *keys: int) -> None:
    platform = face.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.array(keys, dtype=np.uint64))


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
