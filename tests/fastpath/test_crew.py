"""The crew: threads that share the copy of one batch, whose results depend neither on their number nor on who else asks."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath import Columns, CorruptFile, SampleStore
from tests.examples import examples
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, one_file_of_rows

ROW = np.dtype([("label", "<u1"), ("x", "<i4", (5,)), ("y", ">f8"), ("z", "<u2")])
#: Outputs of 1, 20 and 16 bytes a row: parts of some begin at odd addresses unless they are cut with care.
COLUMNS = Columns(ROW, {"label": "label", "x": (["x"], np.float32), "yz": (["y", "z"], np.float64)})
N = 60_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SampleStore:
    rng = np.random.default_rng(0)
    records = np.zeros(997, ROW)
    records["label"], records["x"] = rng.integers(0, 256, 997), rng.integers(-9_999, 9_999, (997, 5))
    records["y"], records["z"] = rng.normal(size=997), rng.integers(0, 2**16, 997)
    samples = [PlacedSample(i % 2, i % 3, record.tobytes()) for i, record in enumerate(records)]
    return MadeStore(tmp_path_factory.mktemp("rows"), [MadeBatch(0, samples)]).open(dtype=ROW)


def keys_of(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 997, n).astype(np.uint64)


@settings(max_examples=examples(40))
@given(n=st.integers(0, N), threads=st.integers(2, 70), seed=st.integers(0, 9))
def test_columns_are_the_same_in_any_number_of_threads(store: SampleStore, n: int, threads: int, seed: int) -> None:
    keys = keys_of(n, seed)
    alone, shared = COLUMNS.allocate(n), COLUMNS.allocate(n)
    for array in (*alone.values(), *shared.values()):
        array.view(np.uint8).fill(0xEE)
    store.columns_into(keys, COLUMNS, alone)
    store.columns_into(keys, COLUMNS, shared, threads=threads)
    for name, values in alone.items():
        np.testing.assert_array_equal(shared[name].view(np.uint8), values.view(np.uint8))


@settings(max_examples=examples(20))
@given(threads=st.integers(2, 9), separator=st.sampled_from([b"", b"\n"]), data=st.data())
def test_blobs_are_the_same_in_any_number_of_threads(
    blobs: SampleStore, threads: int, separator: bytes, data: st.DataObject
) -> None:
    # One sample of 700 kB among short ones: parts of equal numbers of samples have very different sizes.
    keys = np.array(data.draw(st.lists(st.integers(0, 3), max_size=20)), np.uint64)
    alone = blobs.read_blobs(keys, separator=separator)
    shared = blobs.read_blobs(keys, separator=separator, threads=threads)
    np.testing.assert_array_equal(shared.buffer, alone.buffer)
    np.testing.assert_array_equal(shared.offsets, alone.offsets)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> SampleStore:
    contents = [b"", b"a", b"bc", np.random.default_rng(0).bytes(700_000)]
    samples = [PlacedSample(0, 0, content) for content in contents]
    return MadeStore(tmp_path_factory.mktemp("blobs"), [MadeBatch(0, samples)]).open()


def test_requests_from_many_threads_at_once_are_all_right(store: SampleStore) -> None:
    keys = [keys_of(N, seed) for seed in range(4)]
    expected = [store.read_columns(piece, COLUMNS)["yz"] for piece in keys]

    def read(at: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(store.read_columns(keys[at], COLUMNS, threads=3)["yz"], expected[at])

    with ThreadPoolExecutor(4) as readers:
        list(readers.map(read, range(4)))


@pytest.mark.parametrize("threads", [2, 5])
def test_a_file_cut_short_is_an_error_whichever_thread_touches_it(tmp_path: Path, threads: int) -> None:
    files = one_file_of_rows(tmp_path, N, ordinals=(0, 1))
    columns = Columns(np.dtype([("f0", "<u8")]), {"f0": "f0"})
    path = files.files[0, 0]
    content = path.read_bytes()
    # Only the last keys lie in the part that is cut off; those before them, of another file, keep this thread busy.
    keys = np.concatenate([np.full(N - 100, 1 << 32, np.uint64), np.arange(N - 100, N, dtype=np.uint64)])
    with files.open(threads=threads) as store:
        whole = store.read_columns(keys, columns)["f0"]
        for _ in range(10):
            os.truncate(path, 4096)
            with pytest.raises(CorruptFile, match=f"{path.name}: expected .* bytes.*, found 4096 bytes"):
                store.read_columns(keys, columns)
            path.write_bytes(content)
            np.testing.assert_array_equal(store.read_columns(keys, columns)["f0"], whole)


@pytest.mark.soak("laws-fastpath")
@pytest.mark.process
def test_a_forked_process_has_a_crew_of_its_own(store: SampleStore) -> None:
    keys = keys_of(N, 1)
    expected = store.read_columns(keys, COLUMNS)["yz"]
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            store.read_columns(keys, COLUMNS, threads=3)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                found = [store.read_columns(keys, COLUMNS, threads=3)["yz"] for _ in range(5)]
                os._exit(0 if all(np.array_equal(values, expected) for values in found) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        asking.join()


def blocked_by(thread: Path) -> set[int]:
    """Signals that a thread blocks."""
    status = (thread / "status").read_text(encoding="ascii")
    mask = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.process
def test_helpers_leave_signals_to_the_threads_of_python(store: SampleStore) -> None:
    child = os.fork()
    if child == 0:
        store.read_columns(keys_of(N, 2), COLUMNS, threads=5)
        this, deadline = Path(f"/proc/self/task/{os.getpid()}"), time.monotonic() + 20
        helpers = [thread for thread in Path("/proc/self/task").iterdir() if thread.name != this.name]
        # A thread that has just been created blocks every signal until it runs.
        while any(signal.SIGBUS in blocked_by(thread) for thread in helpers) and time.monotonic() < deadline:
            time.sleep(0.01)
        faults = {signal.SIGBUS, signal.SIGSEGV}
        others = {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD}
        blocked = [blocked_by(thread) for thread in helpers]
        os._exit(0 if len(blocked) == 4 and all(others <= each and not faults & each for each in blocked) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
