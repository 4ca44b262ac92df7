"""Stored models as Dagster shows them, and the job that cleans up after them."""

import dagster as dg
import pytest

from modyn_dagster.reporting.model_tables import bytes_text
from modyn_dagster.resources.model_store import ModelStoreResource
from tests.dagster.face import Face


@pytest.mark.soak("screens")
def test_a_model_shows_how_it_is_stored_and_what_it_derives_from(replayed_face: Face) -> None:
    shown = replayed_face.materializations("by_amount", "model")
    first, second = (shown[key] for key in sorted(shown, key=str))
    assert first["parent_model"] == "none"
    assert second["parent_model"] == first["model"]
    assert second["parent"] == f"/assets/by_amount/model?partition={min(map(str, shown))}"
    for metadata in (first, second):
        info = replayed_face.platform.model_store.info(metadata["model"])
        assert metadata["stored"].endswith(f"as {info.strategy}: {info.reason}")
        assert metadata["stored"].startswith(f"{bytes_text(info.n_bytes)} for {bytes_text(info.full_bytes)} of weights")
        assert metadata["stored_bytes"] == info.n_bytes
        assert "save " in metadata["time"]
        assert f"{metadata['samples']:,} samples of " in metadata["samples_by_batch"]
    assert [line[:12] for line in second["model_tree"].splitlines()[1:-1]] == [first["model"][:12], second["model"][:12]]


def test_the_check_says_how_long_a_recovery_takes(replayed_face: Face) -> None:
    key = dg.AssetCheckKey(dg.AssetKey(["by_amount", "model"]), "stored_exactly")
    [record, *_] = replayed_face.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.event is not None
    assert record.event.dagster_event is not None
    evaluation = record.event.dagster_event.asset_check_evaluation_data
    seconds = evaluation.metadata["seconds"]
    assert evaluation.passed
    assert isinstance(seconds, dg.FloatMetadataValue)
    assert seconds.value is not None
    assert seconds.value > 0


def test_gc_removes_what_killed_writers_left_and_no_model(replayed_face: Face) -> None:
    store = ModelStoreResource(settings=replayed_face.settings).store()
    models = store.list()
    left = store.root / "00" / ".killed.tmp"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half a model")
    result = replayed_face.defs.resolve_job_def("model_store_gc").execute_in_process(instance=replayed_face.instance)
    assert result.success
    assert not left.exists()
    assert store.list() == models
    assert store.verify() == []
    schedule = replayed_face.defs.resolve_schedule_def("model_store_gc_nightly")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_assets_of_ones_own_may_use_a_store_behind_a_url(replayed_face: Face) -> None:
    resource = ModelStoreResource(settings=replayed_face.settings, root="memory://models/of_an_asset")
    source = ModelStoreResource(settings=replayed_face.settings).store()
    model = source.list()[0]

    @dg.asset
    def copied(modyn_model_store: ModelStoreResource) -> str:
        return modyn_model_store.store().save(source.load(model))

    result = dg.materialize([copied], resources={"modyn_model_store": resource})
    assert result.output_for_node("copied") == model
    assert [store.list() for store in resource.every_store()] == [[model]]


def test_a_scrub_is_off_and_fails_with_the_findings_as_a_table(replayed_face: Face) -> None:
    schedule = replayed_face.defs.resolve_schedule_def("scrub_weekly")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    job = replayed_face.defs.resolve_job_def("scrub")
    assert job.execute_in_process(instance=replayed_face.instance).success
    path = next((replayed_face.settings.home / "predictions").rglob("*.codes"))
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    result = job.execute_in_process(instance=replayed_face.instance, raise_on_error=False)
    path.write_bytes(sound)
    assert not result.success
    [failure] = [event for event in result.all_events if event.is_step_failure]
    shown = failure.step_failure_data.user_failure_data
    assert shown is not None
    assert shown.metadata["damaged_or_missing"].value == 1
    table = shown.metadata["findings"]
    assert isinstance(table, dg.TableMetadataValue)
    [record] = table.records
    assert record.data["path"] == str(path.relative_to(replayed_face.settings.home))
    assert "`modyn-dagster repair`" in str(record.data["remedy"])
    assert "1 files are damaged or missing" in str(shown.description)
