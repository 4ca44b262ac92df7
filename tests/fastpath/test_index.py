"""The index of a batch: what is written is read again, and random damage is an error and never a crash."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.format.index import BatchIndex
from fastpath.format.index_file import Extents
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample
from tests.fastpath.sound_files import FILES, HELD, RUNS, SAMPLES, VERSION, records, runs, stream, times, write_index


@st.composite
def places(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Places of samples as formats make them: runs of records, single rows, several files."""
    found: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(1, 6))):
        file, offset, length = draw(st.integers(0, 1)), draw(st.integers(0, 2**40)), draw(st.integers(0, 5))
        gap = draw(st.sampled_from([0, 0, 1]))
        found += [(file, offset + i * (length + gap), length) for i in range(draw(st.integers(1, 5)))]
    return found


@given(places())
def test_extents_lead_to_the_places_they_were_made_of(samples: list[tuple[int, int, int]]) -> None:
    file, offset, length = (np.array(column) for column in zip(*samples))
    extents = Extents.of(file.astype(np.int32), offset, length)
    positions = np.random.default_rng(0).integers(0, len(samples), 3 * len(samples))
    found_file, found_offset, found_length = extents.locate(positions)
    np.testing.assert_array_equal(found_file, file[positions])
    np.testing.assert_array_equal(found_offset, offset[positions])
    np.testing.assert_array_equal(found_length, length[positions])


def test_records_one_after_the_other_are_one_extent() -> None:
    extents = Extents.of(np.zeros(180_000, np.int32), 16 + np.arange(180_000) * 160, np.full(180_000, 160))
    assert len(extents.file) == 1


@pytest.mark.parametrize("with_runs", [True, False])
def test_an_index_reads_back_what_was_written(tmp_path: Path, with_runs: bool) -> None:
    n = 1000
    rng = np.random.default_rng(0)
    offset = np.arange(n) * 8 if with_runs else rng.permutation(n) * 9
    file = np.repeat([0, 1], n // 2).astype(np.int32)
    extents = Extents.of(file, offset, np.full(n, 8))
    targets = rng.normal(size=n)
    checksum = write_index(tmp_path / "i.arrow", extents, n, targets)
    index = BatchIndex.open(tmp_path / "i.arrow", checksum)
    assert (index.n, index.labels, index.files, index.width) == (n, None, tuple(FILES), 8)
    assert index.sizes.tolist() == [10_000, 10_000]
    np.testing.assert_array_equal(index.times, times(n))
    assert index.targets is not None
    np.testing.assert_array_equal(index.targets, targets)
    found_file, found_offset, found_length = index.locate(np.arange(n))
    np.testing.assert_array_equal(found_file, file)
    np.testing.assert_array_equal(found_offset, offset)
    assert set(found_length) == {8}
    assert not index.times.flags.writeable


def test_an_index_may_have_no_samples(tmp_path: Path) -> None:
    write_index(tmp_path / "i.arrow", records(0), 0)
    index = BatchIndex.open(tmp_path / "i.arrow")
    assert (index.n, index.width) == (0, None)


def test_samples_of_different_lengths_have_no_width(tmp_path: Path) -> None:
    write_index(tmp_path / "i.arrow", Extents(np.zeros(2, np.int32), np.zeros(2, np.int64), np.array([3, 4])), 2)
    assert BatchIndex.open(tmp_path / "i.arrow").width is None


@pytest.mark.parametrize("count", [1250, 1])
def test_extents_up_to_the_last_byte_are_taken(tmp_path: Path, count: int) -> None:
    stride = 8 if count > 1 else 2**62
    write_index(tmp_path / "i.arrow", runs((0, 10_000 - 8 * count, 8, stride)), count)
    assert BatchIndex.open(tmp_path / "i.arrow").width == 8


def test_streams_of_the_right_form_are_an_index(tmp_path: Path) -> None:
    (tmp_path / "i.arrow").write_bytes(b"".join(stream(part, VERSION) for part in (SAMPLES, RUNS, HELD)))
    assert BatchIndex.open(tmp_path / "i.arrow").n == 1


FUZZ = """
import sys
from pathlib import Path
import numpy as np
from fastpath import SampleStore, StoreError
from fastpath.format.index import BatchIndex

path, home, seed, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = np.random.default_rng(seed)
whole = np.frombuffer(path.read_bytes(), np.uint8)
damaged = path.with_name("1.arrow")
read = refused = 0
for _ in range(rounds):
    content = whole.copy()
    at = rng.integers(0, len(content), rng.integers(1, 5))
    content[at] = rng.integers(0, 256, len(at)) if rng.random() < 0.5 else content[at] ^ (1 << rng.integers(0, 8, len(at)))
    if rng.random() < 0.2:
        content = content[: rng.integers(0, len(content))]
    damaged.write_bytes(content.tobytes())
    try:
        n = BatchIndex.open(damaged).n
        keys = np.arange(min(n, 2000), dtype=np.uint64) | np.uint64(1 << 32)
        with SampleStore.open([damaged], root=home + "/root", home=home) as store:
            store.read_blobs(keys), store.labels(keys), store.timestamps(keys), store.read(keys)
        read += 1
    except StoreError:
        refused += 1
print(read, refused)
"""


@pytest.mark.soak("laws-fastpath")
@pytest.mark.process
@pytest.mark.parametrize("compress", [True, False])
def test_an_index_with_random_damage_is_read_or_refused_and_never_crashes(tmp_path: Path, compress: bool) -> None:
    samples = [PlacedSample(i // 40 % 2, int(i % 7 == 0), bytes([i]) * 5) for i in range(120)]
    files = MadeStore(tmp_path, [MadeBatch(0, samples, shard=1, compress=compress)])
    (tmp_path / "shards" / "d" / "1.bin").write_bytes(files.files[0, 1].read_bytes())
    command = [sys.executable, "-X", "faulthandler", "-c", FUZZ, str(files.indexes[0]), str(tmp_path), str(int(compress)), "800"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    read, refused = map(int, result.stdout.split())
    assert read > 50
    assert refused > 50
