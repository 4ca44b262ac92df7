"""A replay launched by a person with a browser, or through GraphQL: the real page, its dialog, green partitions at the end."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, Request, expect, sync_playwright

from modyn_dagster.catalog.results.models import find_model
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.graphql import backfill_variables
from tests.integration.harness.outcome import outcome_of
from tests.integration.harness.servers import Servers, served
from tests.projects.tiny import DATASET, amount, batch_text, drop

pytestmark = pytest.mark.soak("screens")

CHROMIUM: Final = shutil.which("chromium")
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
#: Milliseconds.
_CLICK: Final = 60_000
_BACKFILL: Final = 300_000
PIPELINE: Final = "by_amount"
ASSET: Final = (PIPELINE, "replay")
CHECKS: Final = {
    "training_set": ("not_empty", "only_train_samples", "keys_once", "weights_sum", "chances_sum"),
    "model": ("loss_finite", "stored_exactly"),
    "evaluation": ("enough_samples", "champion"),
}

browsing = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: as root, apt-get install chromium")


@pytest.fixture(scope="module")
def installation(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Five imported batches, a pipeline, webserver and daemon."""
    with deployed(postgres_server, tmp_path_factory.mktemp("backfills"), [amount(PIPELINE)]) as deployment:
        for day in range(5):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        deployment.command("dataset", "import", DATASET)
        with served(deployment) as servers:
            yield servers


@pytest.fixture(scope="module")
def backfill(installation: Servers) -> str:
    """Id of a backfill of the replay: the page's own, or where there is no browser one of GraphQL, which is told the same."""
    graphql = installation.graphql
    launched = graphql.backfills(ASSET)
    return launched[0] if launched else graphql.launch_backfill(ASSET, list(installation.deployment.states()))


@pytest.fixture
def page(installation: Servers) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        context = browser.new_context(base_url=installation.graphql.url, viewport={"width": 1400, "height": 900})
        context.set_default_timeout(_CLICK)
        expect.set_options(timeout=_CLICK)
        yield context.new_page()
        browser.close()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Folder of pictures: ``MODYN_SCREENSHOTS`` when it is set, for the documentation."""
    folder = Path(os.environ.get("MODYN_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def launched_with(request: Request) -> dict[str, Any] | None:
    """The variables of the launching mutation; None for any other request."""
    if request.method != "POST" or "LaunchPartitionBackfill" not in (request.post_data or ""):
        return None
    variables: dict[str, Any] = json.loads(request.post_data or "")["variables"]
    return variables


@browsing
def test_the_page_of_the_replay_asset_launches_a_backfill_and_turns_green(
    installation: Servers, page: Page, screenshots: Path
) -> None:
    batches = list(installation.deployment.states())
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: sent.extend(filter(None, [launched_with(request)])))
    page.goto("/assets/by_amount/replay", wait_until="load")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text(f"{len(batches)} partitions selected")).to_be_visible()
    expect(dialog.get_by_text("Backfills all partitions in a single run.")).to_be_visible()
    page.screenshot(path=screenshots / "backfill-dialog.png")
    dialog.get_by_role("button", name="Launch backfill").click()
    expect(dialog).to_be_hidden()
    assert sent == [backfill_variables(ASSET, batches)]

    [backfill] = installation.graphql.backfills(ASSET)
    page.goto(f"/runs/b/{backfill}", wait_until="load")
    expect(page.get_by_text("100% completed")).to_be_visible(timeout=_BACKFILL)
    assert installation.backfill_status(backfill) == "COMPLETED_SUCCESS", installation.why()
    page.screenshot(path=screenshots / "backfill.png")

    page.goto("/assets/by_amount/replay?view=partitions", wait_until="load")
    expect(page.get_by_text(f"Materialized ({len(batches)})")).to_be_visible()
    expect(page.get_by_text("Failed (0)")).to_be_visible()
    page.screenshot(path=screenshots / "replay-partitions.png")


def test_a_backfill_of_the_replay_asset_ends_green_with_every_partition_and_check(installation: Servers, backfill: str) -> None:
    graphql, deployment = installation.graphql, installation.deployment
    status = installation.backfill_status(backfill)
    launched = graphql.backfill(backfill)
    assert status == "COMPLETED_SUCCESS", installation.why()
    batches = list(deployment.states())
    assert launched["numPartitions"] == len(batches)
    [run] = launched["runs"]
    assert run["status"] == "SUCCESS"

    keys, statuses = graphql.partitions(ASSET)
    assert keys == batches
    assert sorted(statuses["materializedPartitions"]) == sorted(batches)
    found = deployment.run(PIPELINE, "replay")
    assert found is not None
    outcome = outcome_of(deployment.platform, found)
    assert outcome.state == "finished"
    triggers = [row.partition_key for row in deployment.triggers(PIPELINE, "replay")]
    assert len(triggers) == len(outcome.models) == 2
    for asset, checks in CHECKS.items():
        _, statuses = graphql.partitions([PIPELINE, asset])
        assert sorted(statuses["materializedPartitions"]) == triggers
        assert not statuses["failedPartitions"]
        for check in checks:
            executions = graphql.checks([PIPELINE, asset], check)
            assert {row["evaluation"]["partition"] for row in executions} == set(triggers), (asset, check, executions)
            # A model may be worse than the champion before it.
            assert check == "champion" or all(row["evaluation"]["success"] for row in executions)


@browsing
def test_the_pages_of_a_model_show_its_hash_its_curve_its_mlflow_run_and_its_check(
    installation: Servers, backfill: str, page: Page, screenshots: Path
) -> None:
    assert installation.backfill_status(backfill) == "COMPLETED_SUCCESS", installation.why()
    trigger = installation.deployment.triggers("by_amount", "replay")[1]
    with installation.deployment.platform.transaction() as conn:
        model = find_model(conn, trigger.id)
    assert model is not None
    page.goto(f"/assets/by_amount/model?view=partitions&partition={trigger.partition_key}", wait_until="load")
    expect(page.get_by_role("cell", name=model.hash)).to_be_visible()
    expect(page.get_by_role("row", name="loss_chart")).to_be_visible()
    expect(page.get_by_role("link", name=str(trigger.mlflow_run_id)).first).to_be_visible()
    page.screenshot(path=screenshots / "model-partition.png")
    page.goto("/assets/by_amount/model?view=checks", wait_until="load")
    expect(page.get_by_text("loss_finite").first).to_be_visible()
    page.goto("/asset-groups", wait_until="load")
    expect(page.get_by_text("by_amount").first).to_be_visible()
    page.screenshot(path=screenshots / "asset-graph.png")
