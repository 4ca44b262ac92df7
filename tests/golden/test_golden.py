"""Nothing moved: a few of the golden pipelines come to what was recorded, replayed and live.

What models and measurements decide (weights, predictions, scores) is compared only on the processor and with the libraries of
the record; batches, JSON Schemas, and decisions and training sets that no model has a part in, everywhere. All pipelines are
compared by the part ``golden`` of `make soak`, and by ``python -m tests.golden.record --compare``; both take some minutes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from modyn_dagster.catalog.access.roles import DATABASES
from tests.conftest import RunningServer
from tests.golden.comparing import Subjects, difference, ours, portable_kinds
from tests.golden.environment import environment, schemas
from tests.golden.record import PIPELINES, RECORD, made, read, read_common

#: A policy of one's own and the cost of waiting; T-TBS and R-TBS; downsampling; differences and provenance.
CHOSEN: Final = ("own_policy", "cost_latency")
OTHERS: Final = tuple(sorted(set(PIPELINES) - set(CHOSEN)))
_PREFIX: Final = "golden_"


def record(server: RunningServer, folder: Path, pipelines: Sequence[str]) -> Subjects:
    """Subjects of some pipelines, replayed and live, as a record holds them."""
    subjects = made(folder, server.url, pipelines, _PREFIX)
    for mode in ("replay", "live"):
        for name in DATABASES:
            server.drop_database(f"{_PREFIX}{mode}_{name}")
    as_recorded: Subjects = json.loads(json.dumps(subjects))
    return as_recorded


@pytest.fixture(scope="module")
def found(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    return record(postgres_server, tmp_path_factory.mktemp("golden"), CHOSEN)


def assert_as_recorded(subjects: Subjects) -> None:
    same_place = read_common(RECORD)["environment"] == environment()
    lines = difference(read(RECORD, list(subjects)), subjects, same_place=same_place)
    assert [line for line in lines if not ours(line)] == []


def test_a_few_pipelines_come_to_what_was_recorded(found: Subjects) -> None:
    assert_as_recorded(found)


@pytest.mark.soak("golden")
@pytest.mark.parametrize("group", range(3))
def test_every_pipeline_comes_to_what_was_recorded(postgres_server: RunningServer, tmp_path: Path, group: int) -> None:
    assert_as_recorded(record(postgres_server, tmp_path / "golden", OTHERS[group::3]))


def test_live_they_are_what_they_are_replayed(found: Subjects) -> None:
    for modes in found.values():
        others = {kind for kind, rows in modes["live"].items() if rows != modes["replay"][kind]}
        # A live run is moved more often, and predicts what is new at each evaluation.
        assert others <= {"run", "predictions"}


@pytest.mark.process
def test_the_json_schemas_are_those_recorded(tmp_path: Path) -> None:
    assert schemas(tmp_path) == read_common(RECORD)["schemas"]


def test_each_pipeline_is_recorded() -> None:
    assert {path.stem for path in RECORD.glob("*.json")} == {*PIPELINES, "common", "levels", "stream"}


def test_what_measures_nothing_is_compared_everywhere() -> None:
    everywhere = {name for name in PIPELINES if "training_sets" in portable_kinds(name)}
    assert everywhere >= {"amount_plain", "bounded", "coresets", "cost_latency", "memory_gdumb", "own_policy", "reservoir"}
    assert portable_kinds("drift_rules") == portable_kinds("cost_errors") == ()
    assert portable_kinds("memory_gss") == ("run", "decisions", "triggers")
