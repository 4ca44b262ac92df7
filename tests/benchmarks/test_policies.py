import numpy as np
import pytest

from benchmarks.policy_streams import LabelledStream, Units, write_batches
from benchmarks.policy_table import blocks
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.triggering import build_policy

UNITS = Units(10, (50, 200), ("5d", "20d"), 1e6, 5.0, 0.8, 0.05, "7d", "10d")


def stream(n: int) -> LabelledStream:
    times = np.arange(n) * 86_400
    features = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    return LabelledStream("tiny", times, features, times % 3, UNITS, {})


@pytest.mark.parametrize("policy", blocks(UNITS))
def test_every_block_of_the_table_builds_its_policy(policy):
    build_policy(blocks(UNITS)[policy])


def test_the_table_has_ten_policies_and_more_of_every_sort():
    table = blocks(UNITS)
    assert len(table) >= 10
    kinds = {block["kind"] for block in table.values()}
    assert kinds >= {"time", "amount", "drift", "performance", "cost", "budget", "ensemble"}


def test_batches_hold_the_stream_in_order(tmp_path):
    tiny = stream(35)
    assert write_batches(tiny, tmp_path / "data", 10 * 86_400) == 4
    rows = np.concatenate([np.fromfile(path, tiny.records().dtype) for path in sorted((tmp_path / "data").iterdir())])
    assert rows["time"].tolist() == tiny.times.tolist()
    assert rows["x"].tolist() == tiny.features.tolist()
    assert rows["label"].tolist() == tiny.labels.tolist()


def test_the_datasets_block_is_valid(tmp_path):
    DatasetSpec.model_validate(stream(5).dataset(tmp_path))


def test_a_share_of_a_stream_is_its_beginning():
    assert stream(40).first(0.25).times.tolist() == stream(10).times.tolist()
