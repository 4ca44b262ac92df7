"""Batches of an epoch from memory, and from a reader that is called batch by batch; streams: test_streamed.py."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, Task
from modyn_dagster.training.inputs import dataset_statistics as survey_module
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.inputs.batches import Batches, batch_sizes
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics, measure_dataset
from modyn_dagster.training.models.network import build_network
from modyn_dagster.training.parsing.parser import Parsing
from tests.training.table import FASTEST, MakeTable, Table, spec_of
from tests.training.transforming import function

TASK = Task("class", n_classes=2, exclude=frozenset({"label"}))
STREAMED = FastPath(cache_bytes=0)


def surveyed(table: Table, spec: TrainingSpec, fast: FastPath) -> DatasetStatistics:
    return measure_dataset(spec, table.data(np.arange(1, table.n + 1), fast), TASK, Parsing(spec.parser, "p"))


def batches_of(table: Table, spec: TrainingSpec, fast: FastPath = FASTEST) -> Batches:
    found = surveyed(table, spec, fast)
    network = build_network(spec, found.reading.features.layout, 2, source="p")
    for name, scaler in network.scalers().items():
        scaler.fit(found.moments[name])
    return Batches(found, network, 2)


def numbers(n: int) -> Table:
    return Table({"x": np.arange(n, dtype=np.float64)}, labels=np.zeros(n, dtype=np.int64))


def rows_of(batches: list[Batch], table: Table) -> list[list[int]]:
    return [(batch.keys - int(table.keys[0])).tolist() for batch in batches]


WAYS = st.sampled_from([FASTEST, STREAMED])
SHUFFLES = st.sampled_from([True, False, "blocks"])


@given(st.integers(1, 300), st.integers(1, 70), SHUFFLES, st.integers(1, 90), st.integers(0, 2**63 - 1), st.integers(0, 5), WAYS)
def test_an_epoch_holds_every_sample_once(
    n: int, batch_size: int, shuffle: bool | str, block_size: int, seed: int, epoch: int, fast: FastPath
) -> None:
    table, spec = numbers(n), spec_of(batch_size=batch_size, shuffle=shuffle, block_size=block_size)
    rows = rows_of(list(batches_of(table, spec, fast).epoch(spec, seed=seed, epoch=epoch)), table)
    assert [len(batch) for batch in rows[:-1]] == [batch_size] * (len(rows) - 1)
    assert sorted(chain.from_iterable(rows)) == list(range(n))


@given(st.integers(1, 300), st.integers(1, 70), WAYS)
def test_a_dropped_last_batch_is_short_and_never_the_only_one(n: int, batch_size: int, fast: FastPath) -> None:
    table, spec = numbers(n), spec_of(batch_size=batch_size, drop_last=True)
    sizes = [len(rows) for rows in rows_of(list(batches_of(table, spec, fast).epoch(spec, seed=0, epoch=0)), table)]
    assert sizes == ([batch_size] * (n // batch_size) or [n])
    assert len(sizes) == len(batch_sizes(n, spec))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    table, spec = numbers(50), spec_of(batch_size=50)
    batches = batches_of(table, spec)
    orders = [tuple(next(batches.epoch(spec, seed=seed, epoch=epoch)).keys.tolist()) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_without_shuffling_the_order_is_that_of_the_training_set() -> None:
    table, spec = numbers(10), spec_of(batch_size=4, shuffle=False)
    rows = rows_of(list(batches_of(table, spec).epoch(spec, seed=0, epoch=3)), table)
    assert list(chain.from_iterable(rows)) == list(range(10))


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_batches_from_memory_equal_batches_from_the_reader(separable: Table, batch_size: int) -> None:
    spec = spec_of(batch_size=batch_size)
    assert surveyed(separable, spec, STREAMED).cached is None
    assert surveyed(separable, spec, FASTEST).cached is not None
    slow, fast = (list(batches_of(separable, spec, way).epoch(spec, seed=5, epoch=1)) for way in (STREAMED, FASTEST))
    assert len(slow) == len(fast) == len(batch_sizes(300, spec))
    for one, other in zip(slow, fast, strict=True):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.inputs["features"], other.inputs["features"])
        assert torch.equal(one.targets, other.targets)
        assert torch.equal(one.weights, other.weights)
        assert one.weight == other.weight
        assert one.weights.tolist() == (one.keys - int(separable.keys[0]) + 1).tolist()


def test_a_small_training_set_is_read_once(separable: Table) -> None:
    batches = batches_of(separable, spec_of())
    read = sum(separable.reads)
    for epoch in range(3):
        list(batches.epoch(spec_of(), seed=0, epoch=epoch))
    assert sum(separable.reads) == read == 300 + survey_module.EXAMPLE


def test_large_samples_are_surveyed_a_few_at_a_time(table: MakeTable, parsers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "CHUNK_BYTES", 10 * 32)
    large = table({}, labels=np.zeros(100, dtype=np.int64), blobs=[b"abcd"] * 100)
    surveyed(large, spec_of(parser=f"{parsers}:images"), STREAMED)
    assert large.reads == [survey_module.EXAMPLE, *[10] * 10], "four pixels are 32 bytes when they are standardised"
    padded = table({}, labels=np.zeros(100, dtype=np.int64), blobs=[b"1,2" + b" " * 77] * 100)
    surveyed(padded, spec_of(parser=f"{parsers}:two_numbers"), STREAMED)
    assert padded.reads == [survey_module.EXAMPLE, *[4] * 25], "bytes count where they are more than what is made of them"


def test_nothing_is_surveyed_where_nothing_has_to_be_known(table: MakeTable, user_code: str, parsers: str) -> None:
    blobs = table({}, labels=np.zeros(100, dtype=np.int64), blobs=[b"abcd"] * 100)
    surveyed(blobs, spec_of(parser=f"{parsers}:images", model={"factory": f"{user_code}:linear"}), STREAMED)
    assert blobs.reads == [survey_module.EXAMPLE]


@pytest.mark.usefixtures("user_code")
def test_a_transform_that_works_in_place_changes_no_batch_that_is_trained_on() -> None:
    """Autograd keeps the inputs of one batch for its backward pass while the next ones of its block are transformed ahead."""
    spec = spec_of(transforms=[function("in_place", per="batch", draws=False)], batch_size=20)
    batches = batches_of(numbers(60), spec).epoch(spec, seed=0, epoch=0)
    weight = torch.ones(1, requires_grad=True)
    loss = (next(batches).inputs["features"] @ weight).sum()
    assert len(list(batches)) == 2
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
