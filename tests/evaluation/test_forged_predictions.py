"""Prediction files with a right checksum and a content made to mislead: an error that names file and reason, soon."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.predictions.files import read_predictions, write_predictions
from modyn_dagster.values.digest import checksum_of
from tests.evaluation.fuzz_predictions import sound
from tests.variants import represented

ROOT = Path(__file__).parents[2]


def table(n: int = 3, **changed: pa.Array) -> pa.Table:
    """Predictions of n samples as ``write_predictions`` lays them out, with other columns in the place of some."""
    outputs = pa.FixedSizeListArray.from_arrays(
        pa.array(np.zeros(2 * n), pa.float32()), type=pa.list_(pa.field("item", pa.float32(), nullable=False), 2)
    )
    columns = {
        "key": pa.array(range(n), pa.uint64()),
        "time": pa.array(range(n), pa.timestamp("us", tz="UTC")),
        "label": pa.array([0] * n, pa.int64()),
        "outputs": outputs,
        "loss": pa.array([0.0] * n, pa.float32()),
    } | changed
    required = {"key", "time", "outputs"}
    return pa.table(columns, pa.schema([pa.field(k, v.type, nullable=k not in required) for k, v in columns.items()]))


def arrow(content: pa.Table, *, compression: str | None = None, times: int = 1) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(path, content.schema, options=options) as out:
            for _ in range(times):
                out.write_table(content)

    return write


def holds(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def one_batch_many_times(path: Path) -> None:
    """A footer that names a single record batch 2,000 times: its blocks are copied behind each other."""
    with pa.ipc.new_file(path, table(2_000).schema) as out:
        for _ in range(2_000):
            out.write_table(table(1))
    content = path.read_bytes()
    size = int.from_bytes(content[-10:-6], "little")
    footer = bytearray(content[-10 - size : -10])
    # Blocks are 24 bytes each: offset, length of the metadata, length of the body. The first is that of the first batch.
    with pa.ipc.new_file(path, table(2_000).schema) as out:
        out.write_table(table(2_000))
    one = path.read_bytes()
    own_size = int.from_bytes(one[-10:-6], "little")
    own = one[-10 - own_size : -10]
    first = one.index(b"\xff\xff\xff\xff", 8 + int.from_bytes(one[12:16], "little"))
    block = next(own[i : i + 24] for i in range(0, len(own) - 24, 4) if own[i : i + 8] == first.to_bytes(8, "little"))
    their_first = content.index(b"\xff\xff\xff\xff", 8 + int.from_bytes(content[12:16], "little"))
    start = next(i for i in range(0, len(footer) - 24, 4) if footer[i : i + 8] == their_first.to_bytes(8, "little"))
    footer[start : start + 24 * 2_000] = block * 2_000
    path.write_bytes(one[: -10 - own_size] + bytes(footer) + size.to_bytes(4, "little") + b"ARROW1")


def empty_batch(path: Path) -> None:
    [batch] = table(1).to_batches()
    with pa.ipc.new_file(path, batch.schema) as out:
        out.write_batch(batch.slice(0, 0))


FORGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (holds(b""), "predictions as Arrow IPC"),
    "no Arrow": (holds(b"ARROW1\0\0" + b"x" * 100 + b"ARROW1"), "predictions as Arrow IPC"),
    "compressed values": (arrow(table(5_000), compression="zstd"), "ZSTD decompression failed|more than fit into the file"),
    "an empty batch": (empty_batch, "record batch 0 has 0 rows"),
    "outputs that are no lists": (arrow(table(outputs=pa.array([1.0, 2.0, 3.0]))), "the columns of predictions"),
    "outputs of several lengths": (arrow(table(outputs=pa.array([[1.0], [], [2.0]]))), "the columns of predictions"),
    "keys of another type": (arrow(table(key=pa.array([1, 2, 3]))), "the columns of predictions"),
    "a column twice": (
        arrow(pa.Table.from_arrays([*table().columns, table()["loss"]], names=[*table().column_names, "loss"])),
        "the columns of predictions",
    ),
    "columns as dictionaries": (arrow(table(label=pa.array([1, 1, 2]).dictionary_encode())), "the columns of predictions"),
    "keys out of order": (arrow(table(key=pa.array([3, 2, 1], pa.uint64()))), "not strictly ascending"),
    "one key twice": (arrow(table(), times=2), "not strictly ascending"),
    "a negative label": (arrow(table(label=pa.array([0, -7, 0], pa.int64()))), "a negative label"),
    "a batch that is named 2,000 times": (one_batch_many_times, "more than fit into the file"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused_by_name_and_reason(tmp_path: Path, name: str) -> None:
    write, reason = FORGED[name]
    path = tmp_path / "p.arrow"
    write(path)
    with pytest.raises(CorruptFile, match=rf"p\.arrow: (.|\n)*({reason})"):
        read_predictions(path, checksum_of(path))


def test_predictions_of_the_same_layout_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.arrow"
    arrow(table())(path)
    assert read_predictions(path, checksum_of(path)).keys.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["class", "target"])
def test_what_was_written_comes_back_with_its_gaps(tmp_path: Path, kind: Any) -> None:
    path, whole = tmp_path / "p.arrow", sound(kind, 1_000, 5)
    parts = [whole.take(slice(start, start + 77)) for start in range(0, 1_000, 77)]
    written = write_predictions(path, parts, kind=kind, n_outputs=5)
    found = read_predictions(path, written.checksum)
    for name in ("keys", "times", "truth", "outputs", "losses"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


@pytest.mark.process
@represented("target", ["predictions", "targets", "several_targets"], "fuzz", "several_targets")
@pytest.mark.parametrize("n", [1_000, pytest.param(20_000, marks=pytest.mark.soak("fuzz"))])
def test_any_damage_under_a_right_checksum_is_an_error_or_read_in_bounds(tmp_path: Path, target: str, n: int) -> None:
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.evaluation.fuzz_predictions",
        target,
        str(tmp_path),
        "1",
        str(n),
    ]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert child.returncode == 0, f"exit {child.returncode} with the file as it is in {tmp_path}\n{child.stderr[-6000:]}"
