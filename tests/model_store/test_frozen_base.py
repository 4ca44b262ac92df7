"""A frozen base is stored once, whatever the strategy, and stays until the last model that needs it is gone."""

from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, ModelStore, Snapshot
from modyn_dagster.model_store.strategies.settings import Strategy

BASE: Final = {f"base.{i}": torch.randn(512, 512, generator=torch.Generator().manual_seed(i)) for i in range(2)}
BYTES: Final = sum(tensor.nbytes for tensor in BASE.values())
STRATEGIES: Final = [Snapshot(), ChangedLayers(), Delta(), Adaptive(), Adaptive(max_recovery_seconds=1e-9)]


def tuned(seed: int) -> dict[str, Tensor]:
    """The base with a head of its own, in the order of a network."""
    return BASE | {"head": torch.randn(8, 512, generator=torch.Generator().manual_seed(100 + seed))}


def own_bytes(store: ModelStore) -> int:
    return sum(store.size(model) for model in store.list())


@pytest.mark.parametrize("in_chain", [pytest.param(True, marks=pytest.mark.soak("laws-models")), False])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["snapshot", "layers", "delta", "adaptive", "adaptive_in_a_hurry"])
def test_a_frozen_base_is_stored_once_whatever_the_strategy(tmp_path: Path, strategy: Strategy, in_chain: bool) -> None:
    store, base = ModelStore(tmp_path), None
    models = []
    for seed in range(5):
        models.append(store.save(tuned(seed), base=base, strategy=strategy))
        base = models[-1] if in_chain else None
    assert own_bytes(store) < BYTES * 1.1
    for seed, model in enumerate(models):
        for name, tensor in tuned(seed).items():
            assert torch.equal(store.load(model)[name], tensor)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["snapshot", "layers", "delta", "adaptive", "adaptive_in_a_hurry"])
def test_the_base_stays_until_the_last_model_is_gone(tmp_path: Path, strategy: Strategy) -> None:
    store = ModelStore(tmp_path)
    models = [store.save(tuned(seed), strategy=strategy) for seed in range(3)]
    assert store.delete_unneeded(models[:1]) == [models[0]]
    store.gc()
    for seed in range(2):
        store.delete(models[seed], rebase=True)
        store.gc()
        assert own_bytes(store) < BYTES * 1.1
        for later in range(seed + 1, 3):
            assert torch.equal(store.load(models[later])["base.0"], BASE["base.0"])
    assert store.verify() == []
    store.delete(models[2])
    assert own_bytes(store) == 0


def test_a_plain_snapshot_that_was_asked_for_is_a_whole_file(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    models = [store.save(tuned(seed), strategy=Snapshot(compress=False)) for seed in range(2)]
    assert store.info(models[1]).needs == ()
    assert store.size(models[1]) > BYTES
