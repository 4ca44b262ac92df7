"""Five thousand files at once, through the sensor, the daemon and the runs of the shipped `dagster.yaml`."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from modyn_dagster.assets.dagster_runs import DATASET_TAG
from modyn_dagster.cli.dagster_runs import dagster_instance
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import DATASET, amount, batch_text, drop

BATCHES: Final = 5_000
ROWS: Final = 2
SAMPLES: Final = dg.AssetKey([DATASET, "samples"])
NEW_DATA: Final = f"new_data__{DATASET}"
BAD: Final = "day_3210"
#: Events of a page of Dagster's event log.
_PAGE: Final = 1_000


@pytest.fixture
def servers(postgres_server: RunningServer, tmp_path: Path) -> Iterator[Servers]:
    with deployed(postgres_server, tmp_path, [amount()]) as deployment, served(deployment) as servers:
        yield servers


@pytest.fixture
def instance(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance that the servers work on."""
    monkeypatch.setenv("DAGSTER_HOME", str(servers.deployment.project))
    with dagster_instance(servers.deployment.settings) as instance:
        yield instance


def times_shown(instance: dg.DagsterInstance) -> Counter[str | None]:
    """Number of materializations of each partition."""
    found: Counter[str | None] = Counter()
    cursor = None
    while True:
        page = instance.fetch_materializations(SAMPLES, limit=_PAGE, cursor=cursor)
        found.update(record.partition_key for record in page.records)
        if not page.has_more:
            return found
        cursor = page.cursor


def times_checked(instance: dg.DagsterInstance, name: str) -> Counter[str | None]:
    """Number of evaluations of a check that passed, by partition."""
    history = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(SAMPLES, name), limit=2 * BATCHES)
    # Each run also sums up its batches, without a partition.
    evaluations = [record.evaluation for record in history if record.partition is not None]
    return Counter(found.partition for found in evaluations if isinstance(found, dg.AssetCheckEvaluation) and found.passed)


@pytest.mark.soak("scale")
def test_thousands_of_files_become_batches_in_order_each_shown_once_though_the_daemon_is_killed(
    servers: Servers, instance: dg.DagsterInstance
) -> None:
    deployment, keys = servers.deployment, [f"day_{day:04d}" for day in range(BATCHES)]
    for day, key in enumerate(keys):
        text = batch_text(day, rows=ROWS)
        drop(deployment.project, key, re.sub("Z,[^,]*", "Z,none", text, count=1) if key == BAD else text)
    servers.graphql.start_sensor(NEW_DATA)

    def wait(what: str, share: float) -> None:
        def is_reached() -> bool:
            return sum(state != "open" for state in deployment.states().values()) >= share * BATCHES

        wait_for(what, is_reached, 800, lambda: servers.why(NEW_DATA)[-20_000:])

    wait("a third", 1 / 3)
    servers.kill_first_daemon()
    servers.start_another_daemon()
    wait("all of them", 1)

    def is_idle() -> bool:
        return all(run.is_finished for run in instance.get_runs())

    wait_for("the runs to end", is_idle, 300, lambda: servers.why(NEW_DATA)[-20_000:])
    assert deployment.states() == dict.fromkeys(keys, "ingested") | {BAD: "failed"}
    assert [batch.partition_key for batch in deployment.batches()] == keys
    assert [batch.ordinal for batch in deployment.batches()] == list(range(BATCHES))
    assert list(instance.get_dynamic_partitions(f"batches/{DATASET}")) == keys
    once = Counter(set(keys) - {BAD})
    assert times_shown(instance) == once
    for check in ("labels_present", "in_order"):
        assert times_checked(instance, check) == once
    assert len(instance.get_runs(dg.RunsFilter(tags={DATASET_TAG: DATASET}))) <= BATCHES / 20
