from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, CorruptFile, WriteFailed, WrongShape
from modyn_dagster.evaluation import BatchRange, Predictions, predict_range, read_predictions, write_predictions
from modyn_dagster.keys import keys_of, positions_of
from modyn_dagster.values.digest import checksum_of
from tests.evaluation.stream import Entangled, Stream

BLOCK = 8


def predict(stream: Stream, batches: list[BatchRange]) -> Predictions:
    parts = list(predict_range(Entangled(), stream.read, batches, kind=stream.kind, block=BLOCK))
    return Predictions.concat(parts)


def whole(sizes: list[int]) -> list[BatchRange]:
    return [BatchRange(ordinal, n) for ordinal, n in enumerate(sizes)]


def assert_equal(one: Predictions, other: Predictions) -> None:
    assert one.kind == other.kind
    for field in ("keys", "times", "truth", "outputs", "losses"):
        a, b = getattr(one, field), getattr(other, field)
        assert a.dtype == b.dtype, field
        np.testing.assert_array_equal(a, b)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.data())
def test_outputs_have_the_same_bits_whatever_is_asked_for(sizes: list[int], data: st.DataObject) -> None:
    stream = Stream(sizes)
    if sum(sizes) == 0:
        sizes[0] = 5
    all_at_once = predict(stream, whole(sizes))
    ordinal = data.draw(st.sampled_from([i for i, n in enumerate(sizes) if n]))
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, sizes[ordinal] - 1), min_size=1))))
    some = predict(stream, [BatchRange(ordinal, sizes[ordinal], wanted)])
    rows = np.searchsorted(all_at_once.keys, keys_of(ordinal, wanted))
    assert_equal(some, all_at_once.take(rows))


def test_samples_come_in_key_order_with_their_times_and_labels() -> None:
    sizes = [3, 0, 20]
    found = predict(Stream(sizes), whole(sizes))
    expected = np.concatenate([keys_of(0, np.arange(3)), keys_of(2, np.arange(20))])
    np.testing.assert_array_equal(found.keys, expected)
    np.testing.assert_array_equal(found.truth, positions_of(expected) % 3)
    assert found.times[3] == np.datetime64(2_000_000, "us")


def test_plain_tuples_name_batches_too() -> None:
    stream = Stream([10])
    found = Predictions.concat(list(predict_range(Entangled(), stream.read, [(0, 10, np.array([4]))], kind="class", block=BLOCK)))
    assert_equal(found, predict(stream, whole([10])).take(np.array([4])))


def test_deleted_samples_are_not_read_and_not_predicted() -> None:
    found = predict(Stream([12]), [BatchRange(0, 12, None, np.array([0, 5, 11]))])
    assert positions_of(found.keys).tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_a_long_batch_is_read_in_pieces_of_bounded_size() -> None:
    stream = Stream([1000])
    parts = list(predict_range(Entangled(), stream.read, whole([1000]), kind="class", block=BLOCK))
    assert max(stream.reads) == max(len(part) for part in parts) == 16 * BLOCK
    assert sum(stream.reads) == 1000


def test_losses_are_the_cross_entropy_of_the_outputs() -> None:
    found = predict(Stream([30]), whole([30]))
    logits = found.outputs.astype(np.float64)
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(30), found.truth.astype(int)]
    np.testing.assert_allclose(found.losses, expected, rtol=1e-6)


def test_losses_of_a_regression_are_squared_errors() -> None:
    stream = Stream([30], kind="target")
    found = Predictions.concat(list(predict_range(Entangled(1), stream.read, whole([30]), kind="target")))
    np.testing.assert_allclose(found.losses, (found.outputs[:, 0] - found.truth) ** 2, rtol=1e-6)


class Gaps(Stream):
    """Every fifth sample has no label, every seventh one that no model knows."""

    def read(self, keys: npt.NDArray[np.uint64]) -> Samples:
        samples = super().read(keys)
        position = positions_of(keys)
        labels = np.where(position % 5 == 0, -1, np.where(position % 7 == 0, 9, position % 3))
        return Samples(samples.keys, samples.times, labels, None, samples.columns, samples.blobs)


def test_a_sample_without_a_usable_label_has_no_loss() -> None:
    found = predict(Gaps([30]), whole([30]))
    position = np.arange(30)
    np.testing.assert_array_equal(np.isnan(found.losses), (position % 5 == 0) | (position % 7 == 0))


def test_a_predictor_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(WrongShape, match=r"the predictor returned shape \(8,\), expected \(8, n_outputs\)"):
        list(
            predict_range(lambda samples: np.zeros(len(samples), np.float32), Stream([3]).read, whole([3]), kind="class", block=8)
        )


def test_a_stream_without_the_label_that_is_judged_by_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such label"):
        list(predict_range(Entangled(), Stream([3]).read, whole([3]), kind="target"))


@pytest.mark.parametrize(
    "stream", [Stream([40, 9]), Gaps([40, 9]), Stream([40, 9], kind="target")], ids=["class", "gaps", "target"]
)
def test_a_file_gives_back_what_was_written(tmp_path: Path, stream: Stream) -> None:
    parts = list(predict_range(Entangled(2), stream.read, whole(stream.sizes), kind=stream.kind, block=4))
    path = tmp_path / "predictions.arrow"
    written = write_predictions(path, parts, kind=stream.kind, n_outputs=2)
    assert_equal(read_predictions(path, written.checksum), Predictions.concat(parts))
    assert written.n_samples == 49
    assert (written.first_key, written.last_key) == (int(parts[0].keys[0]), int(parts[-1].keys[-1]))
    assert written.checksum == checksum_of(path)


def test_columns_are_what_others_expect_with_nulls_for_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "p.arrow"
    stream = Gaps([10])
    write_predictions(path, predict_range(Entangled(2), stream.read, whole([10]), kind="class"), kind="class", n_outputs=2)
    with pa.ipc.open_file(path) as reader:
        table = reader.read_all()
    assert str(table.schema.remove_metadata()).splitlines() == [
        "key: uint64 not null",
        "time: timestamp[us, tz=UTC] not null",
        "label: int64",
        "outputs: fixed_size_list<item: float not null>[2] not null",
        "  child 0, item: float not null",
        "loss: float",
    ]
    assert table["label"].to_pylist() == [None, 1, 2, 0, 1, None, 0, 9, 2, 0]
    assert [loss is None for loss in table["loss"].to_pylist()] == [
        True,
        False,
        True,
        False,
        False,
        True,
        False,
        True,
        True,
        False,
    ]


def test_equal_predictions_are_equal_bytes_wherever_they_lie(tmp_path: Path) -> None:
    paths = [tmp_path / "one" / "a.arrow", tmp_path / "other" / "b.arrow"]
    stream = Stream([50])
    written = [
        write_predictions(path, predict_range(Entangled(), stream.read, whole([50]), kind="class"), kind="class", n_outputs=3)
        for path in paths
    ]
    assert written[0] == written[1]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_file_of_no_predictions_can_be_read_and_joined(tmp_path: Path) -> None:
    path = tmp_path / "none.arrow"
    written = write_predictions(path, [], kind="class", n_outputs=3)
    assert (written.n_samples, written.first_key, written.last_key) == (0, None, None)
    nothing = read_predictions(path, written.checksum)
    assert nothing.outputs.shape == (0, 3)
    some = predict(Stream([5]), whole([5]))
    assert_equal(Predictions.concat([nothing, some, nothing]), some)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.arrow"
    stream = Stream([50])
    parts = predict_range(Entangled(), stream.read, whole([50]), kind="class")
    written = write_predictions(path, parts, kind="class", n_outputs=3)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="expected checksum"):
        read_predictions(path, written.checksum)
    path.unlink()
    with pytest.raises(CorruptFile, match="found no file"):
        read_predictions(path, written.checksum)


@pytest.mark.parametrize("content", [b"not arrow at all", b""])
def test_a_file_that_never_was_one_of_predictions_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.arrow"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="expected predictions as Arrow IPC"):
        read_predictions(path, checksum_of(path))


def test_another_kind_of_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.arrow"
    table = pa.table({"key": pa.array([1], pa.uint64()), "label": [2]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CorruptFile, match="expected the columns of predictions"):
        read_predictions(path, checksum_of(path))


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Predictions]:
        yield predict(Stream([5]), whole([5]))
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteFailed, match="No space left on device"):
        write_predictions(tmp_path / "p.arrow", interrupted(), kind="class", n_outputs=3)
    assert list(tmp_path.iterdir()) == []
