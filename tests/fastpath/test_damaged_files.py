"""Every kind of file in every state of damage: an error that names the file, when it is opened or when it is read.

Damage that somebody does to a file while it is open is in ``test_damage.py``, ``test_overwritten_index.py`` and
``test_training_set_damage.py``.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import fastpath.format.index
import fastpath.format.training_set_file
from fastpath import CorruptFile, SampleStore, TrainingSet, TrainingSetWriter
from fastpath.format.deletions import read_deleted
from fastpath.format.index import BatchIndex
from fastpath.format.mapped_files import resident_copy
from fastpath.format.training_set_file import SCHEMA, TrainingSetFile
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, digest
from tests.fastpath.sound_files import (
    CHECKSUM,
    CONTENT,
    HELD,
    KEYS,
    RUNS,
    SAMPLES,
    VERSION,
    WEIGHTS,
    list_of_deleted,
    one,
    records,
    runs,
    stream,
    training_set,
    write_announced,
    write_arrow_file,
    write_index,
    write_one_row,
    write_table,
)  # fmt: skip

BIG = 2**63 - 1
PAGE = 4096


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it lies below a folder, what writes a sound one there, and what reads it."""

    place: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


@dataclass(frozen=True)
class Damage:
    """Damage to a sound file, a pattern of the expected error, and the reader, if it is not that of the kind."""

    do: Callable[[Path], object]
    says: str | None = None
    read: Callable[[Path], object] | None = None


def holds(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Something else in the place of the file."""

    def done(path: Path) -> None:
        path.unlink()
        make(path)

    return done


def flipped(of: bytes, values: np.ndarray, mask: int) -> Callable[[Path], object]:
    """Bits of the byte with which these values begin in the file."""
    content = bytearray(of)
    content[content.index(values.tobytes())] ^= mask
    return holds(bytes(content))


def extents(found: Any, n: int) -> Damage:
    return Damage(lambda path: write_index(path, found, n), "extent")


def streams(samples: bytes, *others: bytes) -> Damage:
    return Damage(holds(b"".join((samples, *others))), INDEX)


def index_of_four(path: Path) -> object:
    return BatchIndex.open(path, write_index(path.with_name("sound.arrow"), records(4), 4))


def write_rows(path: Path) -> None:
    MadeStore(path.parents[1], [MadeBatch(0, [PlacedSample(0, 0, i.to_bytes(8, "little")) for i in range(4)])])


def read_row(path: Path) -> object:
    home = path.parents[1]
    with SampleStore.open([home / "batches/d/0.arrow"], dataset="d", root=path.parent, home=home, width=8) as store:
        return store.read(np.zeros(1, np.uint64))


def read_blob(path: Path) -> object:
    home = path.parents[1]
    with SampleStore.open([home / "batches/d/0.arrow"], root=path.parent, home=home) as store:
        return store.read_blobs(np.zeros(1, np.uint64))


def link_out(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[1] / "outside"))


def dots(path: Path) -> None:
    outside = path.rename(path.parents[1] / "outside")
    write_one_row(path.parents[1] / "batches/d/0.arrow", "../outside", outside.stat().st_size)


def names(name: str) -> Callable[[Path], object]:
    """An index that names this file instead."""

    def done(path: Path) -> None:
        (path.parent / "loop").symlink_to("loop")
        write_one_row(path.parents[1] / "batches/d/0.arrow", name, 100)

    return done


def other_digest(path: Path) -> None:
    """The digest of the first partition stands in the metadata of its record batch, and in the table, where it is reversed."""
    found = xxhash.xxh3_128_hexdigest(KEYS[:1_000].tobytes() + WEIGHTS[:1_000].tobytes()).encode()
    assert CONTENT.count(found) == 2
    at = CONTENT.rindex(found)
    path.write_bytes(CONTENT[:at] + found[::-1] + CONTENT[at + len(found) :])


def arrow(*fields: pa.Field) -> Callable[[Path], object]:
    schema = pa.schema(fields)
    return lambda path: write_arrow_file(path, schema, [pa.array([1, 2], schema.field(0).type), pa.array([1, 2], pa.float32())])


def by_checksum(path: Path) -> object:
    return TrainingSet.open(path, CHECKSUM)


def verified_by_checksum(path: Path) -> None:
    TrainingSet.open(path, CHECKSUM).verify()


def verified(path: Path) -> None:
    TrainingSet.open(path).verify()


def keys_of(path: Path) -> object:
    return TrainingSet.open(path).keys()


def positions(
    name: str, values: pa.Array, metadata: dict[str, str] | None = None, compression: str | None = None, nullable: bool = True
) -> Damage:
    content = stream({name: values}, metadata, compression=compression)
    if nullable:
        return Damage(holds(content), LIST)
    schema = pa.schema([pa.field(name, values.type, nullable=False)], metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(pa.record_batch([values], schema=schema))
    return Damage(holds(bytes(sink.getvalue())), LIST)


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
S, R, H = (stream(part, VERSION) for part in (SAMPLES, RUNS, HELD))
INDEX = r"i\.arrow"
SET = r"set\.arrow: expected a training set"
TABLE = "expected a training set"
COLUMNS = TABLE + ", found .*the columns"
LENGTH = r"2 samples|partitions that fit|3 samples in partition 0, found 2"
BELOW = "expected a file below the dataset's root"
A_FILE = "expected a (regular )?file"
LIST = r"7\.1\.deleted"

READ_BY_CHECKSUM: dict[str, Callable[[Path, str], object]] = {
    "an index": BatchIndex.open,
    "a list of deleted samples": read_deleted,
}
KINDS = {
    "an index": Kind("i.arrow", lambda path: write_index(path, records(4), 4), BatchIndex.open),
    "a training set": Kind("set.arrow", holds(CONTENT), TrainingSet.open),
    "a list of deleted samples": Kind("7.1.deleted", holds(list_of_deleted(np.array([1, 5, 70_000], np.uint32))), read_deleted),
    "a file of rows": Kind("root/0_0.bin", write_rows, read_row),
    "a file to be copied": Kind("rows", holds(b"sixsix"), lambda path: resident_copy(path, 6)),
}
MATRIX: dict[str, dict[str, Damage]] = {
    "an index": {
        "that is missing": Damage(Path.unlink, INDEX),
        "that is empty": Damage(holds(b""), INDEX),
        "that ends after its first six bytes": Damage(holds(b"ARROW1"), INDEX),
        "that is 500 letters": Damage(holds(b"x" * 500), INDEX),
        "that is another than its checksum says": Damage(
            lambda path: write_index(path, records(5), 5), "expected checksum", index_of_four
        ),
        "with an unknown file": extents(one(file=2), 1),
        "with a negative file": extents(one(file=-1), 1),
        "with an extent behind the end": extents(one(offset=10_000), 1),
        "with an extent over the end": extents(one(offset=9_999, length=2), 1),
        "with a negative offset": extents(one(offset=-1), 1),
        "with a negative length": extents(one(length=-1), 1),
        "with an overflowing sum": extents(one(offset=BIG, length=BIG), 1),
        "with fewer extents than samples": extents(one(), 2),
        "with more extents than samples": extents(one(), 0),
        "with a run too long": extents(runs((0, 0, 8, 8)), 1251),
        "with a run whose product overflows": extents(runs((0, 0, 8, 2**62)), 5),
        "with a negative stride": extents(runs((0, 800, 8, -8)), 10),
        "with runs that do not begin with the first sample": extents(runs((1, 0, 8, 8)), 10),
        "with runs in disorder": extents(runs((0, 0, 8, 8), (5, 0, 8, 8), (4, 0, 8, 8)), 10),
        "with two runs at one sample": extents(runs((0, 0, 8, 8), (0, 0, 8, 8)), 10),
        "with a run behind the last sample": extents(runs((0, 0, 8, 8), (10, 0, 8, 8)), 10),
        "with a negative start": extents(runs((0, 0, 8, 8), (-(2**62), 0, 8, 8)), 10),
        "of another version": streams(stream(SAMPLES, {"modyn_index": "2"}), R, H),
        "of no version": streams(stream(SAMPLES, None), R, H),
        "of two batches": streams(stream(SAMPLES, VERSION, 2), R, H),
        "of no batch": streams(stream(SAMPLES, VERSION, 0), R, H),
        "with a stream missing": streams(S, R),
        "with labels of another type": streams(stream(SAMPLES | {"label": pa.array([1], pa.int32())}, VERSION), R, H),
        "with nulls": streams(stream(SAMPLES | {"label": pa.array([None], pa.int64())}, VERSION), R, H),
        "with another column": streams(stream(SAMPLES | {"more": pa.array([1])}, VERSION), R, H),
        "with no times": streams(stream({"label": SAMPLES["label"]}, VERSION), R, H),
        "with no offsets": streams(S, stream({"file": RUNS["file"]}, VERSION), H),
        "with starts without strides": streams(S, stream(RUNS | {"start": RUNS["offset"]}, VERSION), H),
        "with no checksum": streams(S, R, stream(HELD | {"checksum": pa.array([None], pa.string())}, VERSION)),
        "with compressed files": streams(
            S, R, stream({name: pa.concat_arrays([values] * 9_999) for name, values in HELD.items()}, VERSION, compression="zstd")
        ),
        "with a path that is not UTF-8": streams(S, R, stream(HELD | {"path": NOT_UTF8}, VERSION)),
        "with a negative size": streams(S, R, stream(HELD | {"size": pa.array([-5], pa.int64())}, VERSION)),
    },
    "a training set": {
        "that is missing": Damage(Path.unlink, SET),
        "that is a folder": Damage(instead(Path.mkdir), SET),
        "that is a pipe": Damage(instead(os.mkfifo), SET),
        "that is empty": Damage(holds(b""), SET),
        "that is another than its checksum says": Damage(
            holds(training_set(500)[0]), f"expected checksum {CHECKSUM}, found xxh3:", by_checksum
        ),
        "with a weight whose bit is flipped": Damage(
            flipped(CONTENT, WEIGHTS[2_500:2_504], 128), "partition 2 with digest", verified_by_checksum
        ),
        "with another digest in its table, by its checksum": Damage(other_digest, f"expected checksum {CHECKSUM}", by_checksum),
        "with another digest in its table, when it is touched": Damage(other_digest, "partition 0", verified),
        "with nulls": Damage(arrow(pa.field("key", pa.uint64()), pa.field("weight", pa.float32())), COLUMNS),
        "with keys of another type": Damage(arrow(pa.field("key", pa.int64(), nullable=False), SCHEMA.field(1)), COLUMNS),
        "with no table": Damage(arrow(*SCHEMA), TABLE + ", found .*no table of partitions at its end"),
        "with a table of 24 zeros": Damage(lambda path: write_table(path, "00" * 24), TABLE),
        "with a table of letters": Damage(lambda path: write_table(path, "zz"), TABLE),
        "with a table of large numbers": Damage(lambda path: write_table(path, "ff" * 48), TABLE),
        "with a table beyond ASCII": Damage(lambda path: write_table(path, "é"), TABLE),
        "of 2 samples that announces 3": Damage(lambda path: write_announced(path, 2, 3), LENGTH, keys_of),
        "of 2 samples that announces 2**40": Damage(lambda path: write_announced(path, 2, 2**40), LENGTH, keys_of),
        "of 2 samples that announces 2**64 - 1": Damage(lambda path: write_announced(path, 2, 2**64 - 1), LENGTH, keys_of),
        "that announces all that its file could hold and more": Damage(
            lambda path: write_announced(path, 2, 400), "partitions that fit into the file, found 400 samples"
        ),
        "with compressed values": Damage(lambda path: write_announced(path, 1_000, 1_000, "zstd"), "partition", keys_of),
    },
    "a list of deleted samples": {
        "that is missing": Damage(Path.unlink, LIST + ".*No such file"),
        "that is empty": Damage(holds(b""), LIST),
        "that is a text": Damage(holds(b"not Arrow"), LIST),
        "with signed positions": positions("position", pa.array([1], pa.int64())),
        "of no version": positions("position", pa.array([1], pa.uint32())),
        "of another version": positions("position", pa.array([1], pa.uint32()), {"modyn_deleted": "2"}),
        "with compressed positions": positions(
            "position", pa.array(range(100_000), pa.uint32()), {"modyn_deleted": "1"}, "zstd", nullable=False
        ),
        "with another column": positions("place", pa.array([1], pa.uint32()), {"modyn_deleted": "1"}),
    },
    "a file of rows": {
        "that is missing": Damage(Path.unlink, A_FILE),
        "that is a folder": Damage(instead(Path.mkdir), A_FILE),
        "that is a pipe": Damage(instead(os.mkfifo), A_FILE),
        "that is a link out of the root": Damage(link_out, BELOW),
        "that its index reaches by dots": Damage(dots, BELOW),
        "that its index names by a path from the root of the machine": Damage(names("/etc/passwd"), read=read_blob),
        "whose name has a zero byte": Damage(names("a\0b"), read=read_blob),
        "whose name climbs out of the root": Damage(names("../../x"), read=read_blob),
        "whose name leads through a loop": Damage(names("loop/x"), read=read_blob),
        "whose name is empty": Damage(names(""), read=read_blob),
        "whose name is a dot": Damage(names("."), read=read_blob),
    },
    "a file to be copied": {
        "that is missing": Damage(Path.unlink, "rows: expected a file of 6 bytes, found No such file"),
        "that is longer than asked for": Damage(
            lambda path: None, "rows: expected 5 bytes, found 6 bytes", lambda path: resident_copy(path, 5)
        ),
        "that is shorter than asked for": Damage(
            lambda path: None, "rows: expected 7 bytes, found 6 bytes", lambda path: resident_copy(path, 7)
        ),
    },
}
CASES = [pytest.param(kind, damage, id=f"{kind} {name}") for kind, row in MATRIX.items() for name, damage in row.items()]


def sound(kind: str, home: Path) -> Path:
    path = home / KINDS[kind].place
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind].write(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_sound_files_are_read(tmp_path: Path, kind: str) -> None:
    KINDS[kind].read(sound(kind, tmp_path))


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_file_is_refused(tmp_path: Path, kind: str, damage: Damage) -> None:
    path = sound(kind, tmp_path)
    damage.do(path)
    with pytest.raises(CorruptFile, match=damage.says):
        (damage.read or KINDS[kind].read)(path)


FORGED = [
    pytest.param(kind, damage, id=f"{kind} {name}")
    for kind in ("an index", "a list of deleted samples")
    for name, damage in MATRIX[kind].items()
    if damage.read is None and name != "that is missing"
]


@pytest.mark.parametrize(("kind", "damage"), FORGED)
def test_a_right_checksum_does_not_make_a_damaged_file_sound(tmp_path: Path, kind: str, damage: Damage) -> None:
    path = sound(kind, tmp_path)
    damage.do(path)
    with pytest.raises(CorruptFile, match=damage.says):
        READ_BY_CHECKSUM[kind](path, digest(path.read_bytes()))


@pytest.mark.soak("laws-fastpath")
@pytest.mark.parametrize("kind", ["an index", "a list of deleted samples"])
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    path = sound(kind, tmp_path)
    whole = path.read_bytes()
    # The last stream's end marker is all that may be missing.
    for length in range(len(whole) - 8):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFile):
            KINDS[kind].read(path)


def scattered_index(home: Path) -> Path:
    # Places one by one: the index has several pages of values between its metadata.
    samples = [PlacedSample(0, i % 3, i.to_bytes(8, "little")) for i in range(2000)]
    return MadeStore(home, [MadeBatch(0, samples, compress=False)]).indexes[0]


def large_set(home: Path) -> Path:
    path = home / "set.arrow"
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for start in range(0, 8_000, 2_000):
            writer.write(np.arange(start, start + 2_000, dtype=np.uint64), np.ones(2_000, dtype=np.float32))
    return path


@dataclass(frozen=True)
class Moment:
    """A file, the call after which somebody cuts it, and what is ready to read it before that."""

    write: Callable[[Path], Path]
    owner: Any
    call: str
    reader: Callable[[Path], Callable[[], object]]


MOMENTS = {
    "an index that is opened": Moment(
        scattered_index, fastpath.format.index, "open_verified", lambda path: lambda: BatchIndex.open(path)
    ),
    "a training set that is opened": Moment(
        large_set, fastpath.format.training_set_file, "mmap", lambda path: lambda: TrainingSet.open(path)
    ),
    "a partition that is touched first": Moment(
        large_set, TrainingSetFile, "check_unchanged", lambda path: TrainingSet.open(path).verify
    ),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_file_that_is_cut_in_this_moment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Moment) -> None:
    path = moment.write(tmp_path)
    content = path.read_bytes()
    call = getattr(moment.owner, moment.call)
    for length in range(0, len(content), PAGE):
        path.write_bytes(content)
        read = moment.reader(path)

        def then_cut(*arguments: Any, length: int = length, **named: Any) -> Any:
            found = call(*arguments, **named)
            os.truncate(path, length)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(moment.owner, moment.call, then_cut)
            with pytest.raises(CorruptFile, match=re.escape(path.name)):
                read()
