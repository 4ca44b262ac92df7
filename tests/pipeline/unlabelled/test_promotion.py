"""Promotion on a dataset without a label: live as replayed, by errors of samples or by a metric of tokens."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.cli import main
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.evaluation.paired.bounded_losses import bounded_losses
from modyn_dagster.evaluation.paired.comparison import PairedTest, compare_outputs
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.unlabelled.streams import MakeWorld, autoencoder, deliver, world_without_label
from tests.pipeline.world import World

ERRORS = {"metric": "reconstruction_mse", "bound": 50, "min_samples": 10, "confidence": 0.6}


def history(world: World, mode: str) -> list[tuple[Any, ...]]:
    with world.platform.transaction() as conn:
        events = list_promotions(conn, world.run("by_amount", mode).id)
    return [(each.ordinal, each.model_hash, each.before, each.state, each.reason, each.batch, each.verdict) for each in events]


@pytest.fixture
def promoted(world_of: MakeWorld) -> World:
    """A stream that moves, so that newer models reconstruct it better."""
    rollback = {"above": 1e9, "every": "1d", "intervals": 2, "min_samples": 5, "cool_down": "1d"}
    rules = ERRORS | {"guardrails": {"metrics": [{"metric": "reconstruction_mae", "max_drop": 100}]}, "rollback": rollback}
    world = world_without_label(world_of, autoencoder(every=40) | {"promotion": rules})
    for day in range(6):
        deliver(world, [day], shift=2.0 * day)
        world.live_until_idle("by_amount")
    list(finish_live_run(world.platform, world.run("by_amount", "live")))
    world.replay("by_amount")
    return world


def test_a_model_that_reconstructs_better_is_promoted_live_as_replayed(promoted: World) -> None:
    live = history(promoted, "live")
    assert live == history(promoted, "replay")
    assert [state for _, _, _, state, *_ in live].count("champion") > 1


@pytest.mark.soak("replays")
def test_two_models_are_compared_by_the_metrics_of_their_task(promoted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with promoted.platform.transaction() as conn:
        first, second, *_ = (model.hash for model in list_models(conn, promoted.run("by_amount", "replay").id))
    for name, value in promoted.settings.environment().items():
        monkeypatch.setenv(name, value)
    command = ["model", "compare", second, first, "--bound", "50"]
    assert "reconstruction_mse" in CliRunner().invoke(main, [*command, "--metric", "reconstruction_mse"]).output
    refused = CliRunner().invoke(main, [*command, "--metric", "mse"])
    assert refused.exit_code == 1
    assert "the dataset has no label, and the task of training.loss is reconstruction: use reconstruction_mse" in refused.output


@pytest.mark.parametrize(("metric", "unit"), [("reconstruction_mse", 9.0), ("reconstruction_mae", 9.0), ("alignment", 4.0)])
def test_the_mean_of_bounded_losses_is_the_metric(metric: str, unit: float) -> None:
    measures, zeros = np.random.default_rng(2).uniform(0, 8, (30, 2)).astype(np.float32), np.zeros(30)
    losses = bounded_losses(metric, measures, zeros, unit)
    assert unit * losses.mean() == pytest.approx(score(metric, measures, zeros).value)


def test_metrics_of_tokens_are_tested_by_the_bootstrap_and_pairs_by_nothing() -> None:
    rng = np.random.default_rng(2)
    n_tokens = rng.integers(5, 9, 400)
    better, worse = (np.stack([n_tokens, rng.binomial(n_tokens, p), n_tokens], axis=1).astype(np.float32) for p in (0.8, 0.5))
    test = PairedTest("token_accuracy", "block_bootstrap")
    assert compare_outputs(test, better, worse, np.zeros(400), task="tokens").verdict.result == "better"
    assert compare_outputs(test, worse, better, np.zeros(400), task="tokens").verdict.result == "worse or equal"
    with pytest.raises(ConfigError, match="compares samples with each other, and no test holds for that"):
        PairedTest("nt_xent", "block_bootstrap")
