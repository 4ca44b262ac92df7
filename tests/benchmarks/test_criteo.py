import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.criteo import BLOCK, SIZES, blocks, dataset, write_dataset, write_files
from benchmarks.rows import N_CATEGORICAL, N_NUMERIC, ROW, Rows
from modyn_dagster.spec.dataset import DatasetSpec
from tests.examples import examples


def rows_of(n: int, seed: int = 1) -> Rows:
    return np.concatenate([np.empty(0, ROW), *blocks(n, seed)])


def test_a_row_has_160_bytes_13_numbers_26_categories_and_a_label():
    assert ROW.itemsize == 160
    rows = rows_of(10)
    assert rows["num"].shape == (10, N_NUMERIC) == (10, 13)
    assert rows["cat"].shape == (10, N_CATEGORICAL) == (10, 26)
    assert set(np.unique(rows["label"])) <= {0, 1}


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_any_number_of_rows_can_be_made(n):
    assert len(rows_of(n)) == n


def test_a_seed_gives_the_same_rows_and_another_seed_others():
    assert rows_of(100, seed=3).tobytes() == rows_of(100, seed=3).tobytes()
    assert rows_of(100, seed=3).tobytes() != rows_of(100, seed=4).tobytes()


def test_fewer_rows_are_a_prefix_of_more():
    assert rows_of(BLOCK + 500).tobytes().startswith(rows_of(BLOCK + 20).tobytes())


def test_categories_stay_below_their_sizes_and_have_heavy_tails():
    rows = rows_of(2 * BLOCK)
    assert (rows["cat"].min(axis=0) >= 0).all()
    assert (rows["cat"].max(axis=0) < SIZES).all()
    largest = rows["cat"][:, -1]
    # The ten most frequent of 250,000 categories take a sixth of the rows, and still thousands are seen.
    assert (largest < 10).mean() > 0.15
    assert len(np.unique(largest)) > 5_000


def test_numbers_are_finite_and_not_negative():
    rows = rows_of(BLOCK)
    assert np.isfinite(rows["num"]).all()
    assert rows["num"].min() >= 0


def test_labels_depend_on_numbers_and_on_categories():
    rows = rows_of(2 * BLOCK)
    clicks = rows["label"] == 1
    assert 0.1 < clicks.mean() < 0.6
    # A direction fitted on one half separates the other half.
    centred = rows["num"] - rows["num"].mean(axis=0)
    weights, *_ = np.linalg.lstsq(centred[:BLOCK], clicks[:BLOCK] - clicks.mean(), rcond=None)
    score = centred[BLOCK:] @ weights
    assert score[clicks[BLOCK:]].mean() - score[~clicks[BLOCK:]].mean() > 0.02
    rates = [clicks[rows["cat"][:, 0] == category].mean() for category in range(SIZES[0])]
    assert max(rates) - min(rates) > 0.01


@settings(max_examples=examples(15), deadline=None)
@given(n=st.integers(0, 400), rows_per_file=st.integers(1, 150))
def test_files_hold_all_rows_in_order_however_they_are_cut(tmp_path_factory, n, rows_per_file):
    folder = tmp_path_factory.mktemp("criteo")
    paths = write_files(folder, n, seed=2, rows_per_file=rows_per_file)
    sizes = [path.stat().st_size // ROW.itemsize for path in paths]
    assert sizes == [rows_per_file] * (n // rows_per_file) + ([n % rows_per_file] if n % rows_per_file else [])
    assert sorted(paths) == paths == sorted(folder.iterdir())
    assert b"".join(path.read_bytes() for path in paths) == rows_of(n, seed=2).tobytes()


def test_the_dataset_is_one_the_product_can_ingest(tmp_path):
    path = write_dataset(tmp_path)
    spec = DatasetSpec.model_validate(dataset())
    assert path == tmp_path / "datasets" / "criteo.yaml"
    assert spec.format.kind == "fixed_rows"
    assert np.dtype([tuple(field) for field in spec.format.dtype]) == ROW
