import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.training import Task
from modyn_dagster.training import batches as batches_module
from modyn_dagster.training import survey as survey_module
from modyn_dagster.training.batches import Batch, Batches, batches_per_epoch, rows_of_epoch
from modyn_dagster.training.network import build_network
from modyn_dagster.training.survey import survey
from tests.training.table import MakeTable, Table, spec_of


@given(st.integers(1, 300), st.integers(1, 70), st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_an_epoch_holds_every_sample_once(n: int, batch_size: int, shuffle: bool, seed: int, epoch: int) -> None:
    batches = list(rows_of_epoch(n, spec_of(batch_size=batch_size, shuffle=shuffle), seed=seed, epoch=epoch))
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert sorted(np.concatenate(batches)) == list(range(n))


@given(st.integers(1, 300), st.integers(1, 70))
def test_a_dropped_last_batch_is_short_and_never_the_only_one(n: int, batch_size: int) -> None:
    spec = spec_of(batch_size=batch_size, drop_last=True)
    sizes = [len(rows) for rows in rows_of_epoch(n, spec, seed=0, epoch=0)]
    assert sizes == ([batch_size] * (n // batch_size) or [n])
    assert len(sizes) == batches_per_epoch(n, spec)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    spec = spec_of(batch_size=50)
    orders = [tuple(next(rows_of_epoch(50, spec, seed=seed, epoch=epoch))) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_without_shuffling_the_order_is_that_of_the_training_set() -> None:
    rows = rows_of_epoch(10, spec_of(batch_size=4, shuffle=False), seed=0, epoch=3)
    assert np.concatenate(list(rows)).tolist() == list(range(10))


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_batches_from_memory_equal_batches_from_the_reader(
    separable: Table, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    monkeypatch.setattr(batches_module, "READ_AHEAD", 100)
    spec = spec_of(batch_size=batch_size)

    def epoch_of(cache_bytes: int) -> tuple[bool, list[Batch]]:
        monkeypatch.setattr(survey_module, "CACHE_BYTES", cache_bytes)
        data = separable.data(np.arange(1, 301))
        found = survey(spec, data, Task("class", exclude=frozenset({"label"})), source="p")
        network = build_network(spec, found.loader.features.layout, 2, source="p")
        assert network.standardize is not None
        assert found.moments is not None
        network.standardize.fit(found.moments)
        return (found.cached is None), list(Batches(found, network, 2).epoch(spec, seed=5, epoch=1))

    (streamed, slow), (cached, fast) = epoch_of(0), epoch_of(2**20)
    assert (streamed, cached) == (True, False)
    assert len(slow) == len(fast) == batches_per_epoch(300, spec)
    for one, other in zip(slow, fast, strict=True):
        np.testing.assert_array_equal(one.keys, other.keys)
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
        assert torch.equal(one.weights, other.weights)
        assert one.weights.tolist() == (one.keys - separable.keys[0] + 1).tolist()


def test_a_small_training_set_is_read_once(separable: Table) -> None:
    found = survey(spec_of(), separable.data(), Task("class", exclude=frozenset({"label"})), source="p")
    network = build_network(spec_of(), found.loader.features.layout, 2, source="p")
    batches = Batches(found, network, 2)
    for epoch in range(3):
        list(batches.epoch(spec_of(), seed=0, epoch=epoch))
    assert sum(separable.reads) == 300


def test_nothing_is_surveyed_where_nothing_has_to_be_known(
    table: MakeTable, user_code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_module, "CACHE_BYTES", 0)
    monkeypatch.setattr(survey_module, "CHUNK", 10)
    blobs = table({}, labels=np.zeros(100, dtype=np.int64), blobs=[b"abcd"] * 100)
    spec = spec_of(parser=f"{user_code}:images", model={"factory": f"{user_code}:linear"})
    survey(spec, blobs.data(), Task("class", n_classes=2), source="p")
    assert blobs.reads == [10]
