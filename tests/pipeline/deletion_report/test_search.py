"""Fingerprints and search: bytes are found wherever they lie, and the fingerprints do not hold them."""

import hashlib
import io
import secrets
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath.arrays.windows import window_marks
from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import (
    LONGEST,
    Fingerprints,
    FingerprintWriter,
    Hashing,
    named_fingerprints,
)
from modyn_dagster.pipeline.operate.deletion.report.search import CHUNK, PieceSearch
from tests.examples import examples


def fingerprints_of(folder: Path, contents: list[bytes]) -> Fingerprints:
    writer = FingerprintWriter(np.arange(len(contents), dtype=np.uint64), Hashing(secrets.token_bytes(16)))
    for i, content in enumerate(contents):
        writer.add(i, "stored", content)
    writer.write(folder / "1.fingerprints")
    return Fingerprints.read(folder / "1.fingerprints")


def samples_found(fingerprints: Fingerprints, data: bytes) -> set[int]:
    samples = fingerprints.pieces["sample"].to_pylist()
    return {samples[match.piece] for match in PieceSearch(fingerprints).find(io.BytesIO(data))}


contents = st.lists(st.binary(min_size=16, max_size=200).filter(lambda b: len(set(b)) >= 12), min_size=1, max_size=5, unique=True)
quick = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(contents=contents, before=st.binary(max_size=40), after=st.binary(max_size=40), data=st.data())
def test_a_sample_is_found_at_any_offset_and_with_any_cut_of_the_stream(
    tmp_path: Path, contents: list[bytes], before: bytes, after: bytes, data: st.DataObject
) -> None:
    fingerprints = fingerprints_of(tmp_path, contents)
    planted = data.draw(st.integers(0, len(contents) - 1))
    stream = before + contents[planted] + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    window = PieceSearch(fingerprints).window()
    samples = fingerprints.pieces["sample"].to_pylist()
    matches = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        matches += list(window.feed(stream[start:stop]))
    expected = {
        (i, start)
        for i, content in enumerate(contents)
        if i in samples
        for start in range(len(stream) - len(content) + 1)
        if stream.startswith(content, start)
    }
    assert [(samples[match.piece], match.start) for match in matches if (samples[match.piece], match.start) not in expected] == []
    assert len(matches) == len(expected)
    assert planted not in samples or (planted, len(before)) in expected


@quick
@given(
    content=st.binary(min_size=64, max_size=200).filter(lambda b: len(set(b)) > 20), at=st.integers(0, 199), bit=st.integers(0, 7)
)
def test_a_sample_with_one_changed_bit_is_not_found(tmp_path: Path, content: bytes, at: int, bit: int) -> None:
    fingerprints = fingerprints_of(tmp_path, [content])
    changed = bytearray(content)
    changed[at % len(content)] ^= 1 << bit
    assert samples_found(fingerprints, content) == {0}
    assert samples_found(fingerprints, bytes(changed)) == set()


@pytest.mark.parametrize("where", [0, CHUNK - 7, CHUNK - LONGEST, 2 * CHUNK - 1, 2 * CHUNK])
def test_a_long_sample_is_found_over_the_border_of_chunks_and_each_piece_once(tmp_path: Path, where: int) -> None:
    image = np.random.default_rng(1).bytes(3 * LONGEST + 100)
    fingerprints = fingerprints_of(tmp_path, [image])
    assert max(fingerprints.pieces["length"].to_pylist()) <= LONGEST
    stream = bytes(where) + image + bytes(100)
    matches = list(PieceSearch(fingerprints).find(io.BytesIO(stream)))
    assert sorted(match.piece for match in matches) == list(range(len(fingerprints.pieces)))
    assert {match.start - where for match in matches} == set(
        np.cumsum([0, *fingerprints.pieces["length"].to_pylist()[:-1]]).tolist()
    )


def test_a_part_of_a_long_sample_is_found(tmp_path: Path) -> None:
    image = np.random.default_rng(2).bytes(3 * LONGEST)
    fingerprints = fingerprints_of(tmp_path, [image])
    assert samples_found(fingerprints, image[: 2 * LONGEST]) == {0}


@pytest.mark.parametrize(
    "content",
    [b"short", bytes(100), b"ab" * 40, np.float64(3.25).tobytes(), b""],
    ids=["short", "zeros", "regular", "number", "empty"],
)
def test_bytes_that_prove_nothing_are_counted_and_not_searched(tmp_path: Path, content: bytes) -> None:
    fingerprints = fingerprints_of(tmp_path, [content])
    assert fingerprints.not_provable == {"stored": 1}
    assert len(fingerprints.pieces) == 0
    assert samples_found(fingerprints, content * 3) == set()


def test_the_file_holds_no_bytes_of_a_sample_and_is_closed_to_others(tmp_path: Path) -> None:
    rows = [f"2024-01-{i:02d}T00:00:00Z,user-{i:05d}@example.org,{i * 1.37:.6f}".encode() for i in range(1, 29)]
    fingerprints_of(tmp_path, rows)
    content = (tmp_path / "1.fingerprints").read_bytes()
    assert stat.S_IMODE((tmp_path / "1.fingerprints").stat().st_mode) == 0o600
    assert [row for row in rows for start in range(len(row) - 6) if row[start : start + 7] in content] == []


def test_two_files_of_the_same_samples_have_no_hash_in_common(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    row = [b"2024-01-01T00:00:00Z,0.123456,0.654321,1"]
    first, second = (fingerprints_of(tmp_path / name, row).pieces for name in "ab")
    assert first["digest"] != second["digest"]
    assert first["mark"] != second["mark"]


class CountedHashing(Hashing):
    """Hashing that counts the digests."""

    n_digests = 0

    def digest(self, piece: bytes) -> bytes:
        CountedHashing.n_digests += 1
        return super().digest(piece)


def json_row(i: int) -> bytes:
    return (
        f'{{"transaction_time": "2024-01-01", "amount": {(i * 7919) % 100_000 / 7:.9f}, "merchant_category": "books"}}\n'.encode()
    )


@pytest.mark.parametrize("window", ["rare", "common"])
def test_records_with_text_in_common_cost_few_hashes_each(tmp_path: Path, window: str) -> None:
    n_gone, n_rows = 400, 300
    gone = [json_row(i) for i in range(n_gone)]
    fingerprints = fingerprints_of(tmp_path, gone)
    if window == "common":
        # As it is for a single sample, and in files that an earlier version wrote: the window is the name of a field.
        marks = window_marks(np.frombuffer(gone[0][3:19], np.uint8)[None], fingerprints.hashing.marks)
        columns = {"at": np.full(n_gone, 3, np.uint16), "mark": np.full(n_gone, marks[0], np.uint32)}
        pieces = fingerprints.pieces
        for name, values in columns.items():
            pieces = pieces.set_column(pieces.schema.get_field_index(name), name, pa.array(values))
        fingerprints = replace(fingerprints, pieces=pieces)
    fingerprints = replace(fingerprints, hashing=CountedHashing(fingerprints.hashing.salt))
    stream = b"".join([*(json_row(i) for i in range(n_gone, n_gone + n_rows)), gone[17]])
    CountedHashing.n_digests = 0
    assert samples_found(fingerprints, stream) == {17}
    n_lengths = len({len(row) for row in gone})
    assert CountedHashing.n_digests <= {"rare": n_rows, "common": (n_rows + 1) * n_lengths}[window]
    assert n_lengths < 10


def test_a_missing_file_says_what_is_lost(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="without a backup"):
        Fingerprints.read(tmp_path / "1.fingerprints")


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 100, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    fingerprints_of(tmp_path, [b"2024-01-01T00:00:00Z,0.123456,0.654321,1"])
    path = tmp_path / "1.fingerprints"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptFile):
        Fingerprints.read(path)


def test_a_file_of_another_kind_with_a_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.fingerprints"
    body = b"something else altogether"
    path.write_bytes(body + hashlib.blake2b(body, digest_size=16).digest())
    with pytest.raises(CorruptFile):
        Fingerprints.read(path)


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "1-0123abcd.fingerprints/x", "1.fingerprints", "1-0123abcd.fingerprints\n"]
)
def test_a_name_in_a_report_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="name of a file"):
        named_fingerprints(tmp_path, name)
