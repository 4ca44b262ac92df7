"""A replay launched through GraphQL, with the mutation and the variables that the page sends."""

import pytest

from tests.integration.harness.outcome import outcome_of
from tests.integration.harness.servers import Servers

PIPELINE = "by_amount"
CHECKS = {
    "training_set": ("not_empty", "only_train_samples", "keys_once", "weights_sum", "chances_sum"),
    "model": ("loss_finite", "stored_exactly"),
    "evaluation": ("enough_samples", "champion"),
}


@pytest.mark.xdist_group("dagster")
def test_a_backfill_of_the_replay_asset_ends_green_with_every_partition_and_check(
    installation: Servers, launched_backfill: str
) -> None:
    graphql, deployment = installation.graphql, installation.deployment
    status = installation.backfill_status(launched_backfill)
    backfill = graphql.backfill(launched_backfill)
    assert status == "COMPLETED_SUCCESS", installation.why()
    batches = list(deployment.states())
    assert backfill["numPartitions"] == len(batches)
    [run] = backfill["runs"]
    assert run["status"] == "SUCCESS"

    keys, statuses = graphql.partitions([PIPELINE, "replay"])
    assert keys == batches
    assert sorted(statuses["materializedPartitions"]) == sorted(batches)
    found = deployment.run(PIPELINE, "replay")
    assert found is not None
    outcome = outcome_of(deployment.platform, found)
    assert outcome.state == "finished"
    triggers = [row.partition_key for row in deployment.triggers(PIPELINE, "replay")]
    assert len(triggers) == len(outcome.models) == 4
    for asset, checks in CHECKS.items():
        _, statuses = graphql.partitions([PIPELINE, asset])
        assert sorted(statuses["materializedPartitions"]) == triggers
        assert not statuses["failedPartitions"]
        for check in checks:
            executions = graphql.checks([PIPELINE, asset], check)
            assert {row["evaluation"]["partition"] for row in executions} == set(triggers), (asset, check, executions)
            # A model may be worse than the champion before it.
            assert check == "champion" or all(row["evaluation"]["success"] for row in executions)
