import os
import subprocess
import sys
from datetime import timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
from dagster_shared.libraries import DagsterLibraryRegistry

import modyn_dagster
from modyn_dagster import build_definitions
from modyn_dagster.assets.translator import AssetProps, ModynTranslator
from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import load_project, spec_hash
from tests.projects.tiny import amount, write_pipeline

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "baseball"
PIPELINES: Final = ("trained_once", "every_10_seasons", "every_5000_samples")
HEAVY: Final = ("torch", "mlflow", "matplotlib", "pandas", "alibi_detect", "pyarrow", "rich", "modyn_dagster.pipeline.platform")


@pytest.fixture
def example(home: Path) -> dg.Definitions:
    return build_definitions(settings=Settings(EXAMPLE, home))


def specs_of(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_the_example_loads_with_all_assets_sensors_and_jobs(example: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(example)
    made = ("training_set", "model", "evaluation", "replay", "champion")
    of_pipelines = {f"{p}/{asset}" for p in PIPELINES for asset in made}
    assert set(specs_of(example)) == of_pipelines | {"baseball/samples", "baseball/comparison"}
    sensors = {sensor.name: sensor for sensor in example.sensors or []}
    assert set(sensors) == {"new_data__baseball", *(f"triggering__{p}" for p in PIPELINES)}
    jobs = {job.name for job in example.jobs or []}
    assert jobs == {
        "retention",
        "model_store_gc",
        "scrub",
        "delete_samples",
        *(f"{kind}__{p}" for kind in ("train", "evaluate", "trigger_now", "promotion") for p in PIPELINES),
    }


def test_sensors_are_off_until_switched_on_and_look_as_often_as_their_specs_say(example: dg.Definitions) -> None:
    for name in ("new_data__baseball", "triggering__trained_once"):
        sensor = example.resolve_sensor_def(name)
        assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
        assert sensor.minimum_interval_seconds == 30


def test_groups_kinds_owners_and_descriptions_come_from_the_specs(example: dg.Definitions) -> None:
    specs = specs_of(example)
    samples, model = specs["baseball/samples"], specs["every_10_seasons/model"]
    assert (samples.group_name, samples.kinds, samples.owners) == ("baseball", {"postgres", "csv"}, ["team:baseball"])
    assert (model.group_name, model.kinds) == ("every_10_seasons", {"pytorch", "mlflow"})
    assert "A new model every ten seasons" in str(model.description)


def test_an_asset_tells_its_version_source_and_columns_and_a_job_its_owners(example: dg.Definitions) -> None:
    specs = specs_of(example)
    versions = {key: spec.code_version for key, spec in specs.items()}
    assert versions["trained_once/model"] == versions["trained_once/replay"] == spec_hash_of("trained_once")
    assert versions["every_10_seasons/model"] != versions["trained_once/model"]
    [source] = specs["baseball/samples"].metadata["dagster/code_references"].code_references
    assert Path(source.file_path) == EXAMPLE / "datasets" / "baseball.yaml"
    columns = specs["trained_once/training_set"].metadata["dagster/column_schema"].columns
    assert [column.name for column in columns] == ["key", "weight", "chance"]
    owners = {job.name: job.owners for job in example.resolve_all_job_defs() if "__" in job.name[2:]}
    assert set(owners) == {f"{kind}__{p}" for kind in ("train", "evaluate", "trigger_now", "promotion") for p in PIPELINES}
    assert all(owner == ["team:baseball"] for owner in owners.values())


def spec_hash_of(pipeline: str) -> str:
    return spec_hash(load_project(EXAMPLE).pipelines[pipeline])


def test_a_change_of_words_keeps_the_version_and_samples_are_as_fresh_as_their_dataset_says(project: Path, home: Path) -> None:
    def samples_and_model() -> tuple[dg.AssetSpec, dg.AssetSpec]:
        specs = specs_of(build_definitions(project, settings=Settings(project, home)))
        return specs["tiny/samples"], specs["by_amount/model"]

    before = samples_and_model()
    assert before[0].freshness_policy is None
    dataset = project / "datasets" / "tiny.yaml"
    dataset.write_text(f"{dataset.read_text()}\ndescription: in other words\nfreshness: {{maximum: 2d}}\n")
    write_pipeline(project, amount(every=60, description="in other words"))
    worded = samples_and_model()
    assert [spec.code_version for spec in worded] == [spec.code_version for spec in before]
    assert worded[0].freshness_policy == dg.FreshnessPolicy.time_window(timedelta(days=2))
    write_pipeline(project, amount(every=61))
    assert samples_and_model()[1].code_version != before[1].code_version


def test_assets_follow_one_another_from_samples_to_comparison(example: dg.Definitions) -> None:
    specs = specs_of(example)

    def parents(key: str) -> set[str]:
        return {dep.asset_key.to_user_string() for dep in specs[key].deps}

    assert parents("trained_once/training_set") == parents("trained_once/replay") == {"baseball/samples"}
    assert parents("trained_once/model") == {"trained_once/training_set"}
    assert parents("trained_once/evaluation") == {"trained_once/model"}
    assert parents("baseball/comparison") == {f"{p}/{asset}" for p in PIPELINES for asset in ("evaluation", "replay")}


def test_groups_of_assets_follow_one_another_without_a_cycle(example: dg.Definitions) -> None:
    specs = specs_of(example)
    groups: dict[str, set[str]] = {}
    for spec in specs.values():
        before = {str(specs[dep.asset_key.to_user_string()].group_name) for dep in spec.deps}
        groups.setdefault(str(spec.group_name), set()).update(before - {str(spec.group_name)})
    assert len(list(TopologicalSorter(groups).static_order())) == len(PIPELINES) + 2


def test_one_run_at_a_time_works_for_a_live_pipeline(example: dg.Definitions) -> None:
    pools = {
        asset.key.to_user_string(): asset.op.pool for asset in example.assets or [] if isinstance(asset, dg.AssetsDefinition)
    }
    assert pools["trained_once/replay"] is None, "the queue keeps runs of one replay apart by their tags"
    assert {pools[f"trained_once/{asset}"] for asset in ("training_set", "model", "evaluation")} == {"live__trained_once"}
    assert pools["baseball/samples"] is None


def test_checks_are_on_their_assets_and_block_where_they_must(example: dg.Definitions) -> None:
    found = {
        (spec.asset_key.to_user_string(), spec.name): spec.blocking
        for asset in example.assets or []
        if isinstance(asset, dg.AssetsDefinition)
        for spec in asset.check_specs
        if spec.asset_key.path[0] in ("baseball", "trained_once")
    }
    assert found == {
        ("baseball/samples", "labels_present"): True,
        ("baseball/samples", "in_order"): False,
        ("trained_once/training_set", "not_empty"): False,
        ("trained_once/training_set", "only_train_samples"): True,
        ("trained_once/training_set", "keys_once"): True,
        ("trained_once/training_set", "weights_sum"): False,
        ("trained_once/training_set", "chances_sum"): False,
        ("trained_once/model", "loss_finite"): True,
        ("trained_once/model", "stored_exactly"): True,
        ("trained_once/evaluation", "enough_samples"): False,
        ("trained_once/evaluation", "champion"): False,
        ("trained_once/champion", "better_by_test"): False,
    }


def test_a_typo_in_a_spec_names_file_and_field_when_the_location_loads(project: Path, home: Path) -> None:
    write_pipeline(project, amount("typo", evry=5))
    with pytest.raises(ConfigError, match=r"pipelines/typo\.yaml: evry: is not a field here"):
        build_definitions(project, settings=Settings(project, home))


@pytest.mark.parametrize(
    ("field", "content"),
    [("owners.0", {"owners": ["nobody"]}), ("display.tags", {"display": {"tags": {"a": "no spaces"}}})],
)
def test_what_dagster_would_refuse_is_refused_with_file_and_field(
    project: Path, home: Path, field: str, content: dict[str, Any]
) -> None:
    write_pipeline(project, amount("shown", **content))
    with pytest.raises(ConfigError, match=rf"pipelines/shown\.yaml: {field}"):
        build_definitions(project, settings=Settings(project, home))


def test_a_user_code_module_that_does_not_exist_is_refused_when_the_location_loads(project: Path, home: Path) -> None:
    content = amount("lost")
    content["training"]["model"] = {"factory": "nowhere_to_be_found:build"}
    write_pipeline(project, content)
    with pytest.raises(ConfigError, match=r"lost\.yaml: training\.model.*nowhere_to_be_found"):
        build_definitions(project, settings=Settings(project, home))


def test_an_empty_folder_gives_an_empty_location_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    defs = build_definitions(tmp_path)
    assert list(defs.assets or []) == []
    assert "MODYN_PROJECT" in caplog.text


def test_a_translator_changes_keys_and_dependencies_follow(home: Path) -> None:
    class Prefixed(ModynTranslator):
        def get_asset_spec(self, props: AssetProps) -> dg.AssetSpec:
            spec = super().get_asset_spec(props)
            return spec.replace_attributes(key=spec.key.with_prefix("ct"))

    defs = build_definitions(settings=Settings(EXAMPLE, home), translator=Prefixed())
    dg.Definitions.validate_loadable(defs)
    specs = specs_of(defs)
    assert all(key.startswith("ct/") for key in specs)
    assert {dep.asset_key.to_user_string() for dep in specs["ct/trained_once/model"].deps} == {"ct/trained_once/training_set"}


def test_definitions_merge_with_those_of_a_users_own(home: Path) -> None:
    @dg.asset
    def mine(modyn_postgres: dg.ResourceParam[object]) -> None: ...

    merged = dg.Definitions.merge(
        build_definitions(settings=Settings(EXAMPLE, home)), dg.Definitions(assets=[mine], executor=dg.multiprocess_executor)
    )
    dg.Definitions.validate_loadable(merged)
    assert "mine" in specs_of(merged)


def test_the_library_is_registered_with_its_version() -> None:
    assert DagsterLibraryRegistry.get()["modyn-dagster"] == modyn_dagster.__version__


def test_no_configuration_shows_the_password_of_the_database(home: Path) -> None:
    url = "postgresql://me:top-secret@127.0.0.1:1/postgres"
    defs = build_definitions(settings=Settings(EXAMPLE, home, postgres_url=url))
    for resource in (defs.resources or {}).values():
        assert "top-secret" not in str(resource.get_resource_definition().config_schema.default_value)


@pytest.mark.soak("screens")
def test_loading_imports_nothing_heavy_and_warns_of_nothing(tmp_path: Path) -> None:
    program = f"""
import sys
import modyn_dagster
assert "dagster" not in sys.modules
import modyn_dagster.definitions
print(*sorted(set({HEAVY!r}) & set(sys.modules)))
modyn_dagster.definitions.defs.resolve_all_job_defs()
"""
    environment = {**os.environ, "MODYN_PROJECT": str(EXAMPLE), "MODYN_HOME": str(tmp_path / "home")}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""
    assert "Warning" not in result.stderr


def test_retention_runs_every_night_where_a_pipeline_asks_for_it(project: Path, home: Path) -> None:
    def status() -> dg.DefaultScheduleStatus:
        schedule = build_definitions(settings=Settings(project, home)).resolve_schedule_def("retention_nightly")
        assert (schedule.cron_schedule, schedule.job_name) == ("30 3 * * *", "retention")
        return schedule.default_status

    assert status() is dg.DefaultScheduleStatus.STOPPED
    write_pipeline(project, amount(every=60, retention={"models": {"newest": 1}}))
    assert status() is dg.DefaultScheduleStatus.RUNNING
