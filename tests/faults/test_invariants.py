"""The checker of invariants finds every kind of damage: it would be silent about a history otherwise."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from modyn_dagster.pipeline.platform import Platform
from tests.conftest import RunningServer
from tests.faults.installation import Installation, installed
from tests.faults.invariants import leftovers, violations
from tests.faults.worker import Worker
from tests.projects.tiny import amount

pytestmark = [pytest.mark.process, pytest.mark.soak("faults")]


@pytest.fixture(scope="module")
def installation(
    postgres_server: RunningServer, worker: Worker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Three days, a replay over them with two triggers, and a deleted sample."""
    folder = tmp_path_factory.mktemp("invariants") / "first"
    with installed(postgres_server, worker, folder, [amount("by_amount", every=50)]) as installation:
        for day in range(3):
            installation.deliver(day)
        installation.must("ingest")
        installation.must("replay", "by_amount")
        installation.must("delete", [7])
        yield installation


def found(installation: Installation) -> tuple[list[str], list[str]]:
    platform = Platform.open(installation.settings)
    try:
        return violations(platform), leftovers(platform)
    finally:
        platform.close()


def test_a_sound_installation_has_no_violations(installation: Installation) -> None:
    assert found(installation) == ([], [])


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("delete from sample where key = 5", "samples"),
        ("update batch set n_samples = n_samples + 1 where ordinal = 1", "samples"),
        ("update dataset set next_ordinal = 5", "the next is 5"),
        ("update batch set source = (select source from batch where ordinal = 0) where ordinal = 1", "two batches"),
        ("delete from deletion", "deleted"),
        ("update trigger set state = 'pending' where ordinal = 0", "unfinished"),
        ("update trigger set state = 'training', dagster_run_id = null where ordinal = 1", "for nobody"),
        ("update trigger set state = 'failed' where ordinal = 1", "failed"),
        ("update trigger set ordinal = 7 where ordinal = 1", "triggers [0, 7]"),
        ("update trigger set point = 1 where ordinal = 1", "fired"),
        ("update pipeline_run set cursor = 3", "cursor"),
        ("delete from evaluation where trigger_id in (select min(id) from trigger); delete from model where trigger_id in "
         "(select min(id) from trigger)", "have models"),
        ("delete from training_set where trigger_id in (select min(id) from trigger)", "model of trigger 0"),
        ("insert into prediction_file (trigger_id, model_hash, first_key, last_key, n_samples, path, checksum, source) select "
         "trigger_id, model_hash, first_key + 1, last_key, n_samples, path || '2', checksum, source from prediction_file",
         "twice"),
        ("update training_set set checksum = 'xxh3:00'", "checksum"),
    ],
)  # fmt: skip
def test_a_damaged_catalog_is_found(installation: Installation, statement: str, told: str) -> None:
    with installation.copied("damaged") as damaged:
        platform = Platform.open(damaged.settings)
        with platform.transaction() as conn:
            conn.exec_driver_sql(statement)
        platform.close()
        assert told in "\n".join(found(damaged)[0])


@pytest.mark.parametrize(
    "pattern",
    ["batches/*/1.arrow", "batches/*/*.deleted", "training_sets/*/*.arrow", "predictions/*/*/*.codes", "models/??/*"],
)
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "changed"])
def test_a_damaged_file_is_found(installation: Installation, pattern: str, is_missing: bool) -> None:
    with installation.copied("damaged") as damaged:
        path = next(path for path in sorted(damaged.settings.home.glob(pattern), reverse=True) if path.is_file())
        if is_missing:
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        assert found(damaged)[0]


@pytest.mark.parametrize("name", ["training_sets/000001/000009.arrow", "batches/tiny/.0.arrow.12345678.tmp"])
def test_a_file_that_no_row_names_is_left_over(installation: Installation, name: str) -> None:
    with installation.copied("littered") as littered:
        path: Path = littered.settings.home / name
        shutil.copy(next(littered.settings.home.glob("batches/tiny/1.arrow")), path)
        violated, left = found(littered)
        assert not violated
        assert any(name in line for line in left)
