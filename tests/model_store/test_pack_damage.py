"""Damaged packed files, and files that never were a model: an error that names the tensor, in bounded memory."""

import hashlib
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile, ModynError
from modyn_dagster.model_store import Delta, ModelStore, Provenance, Snapshot
from modyn_dagster.model_store.format.codec import table
from modyn_dagster.model_store.format.hash_tree import leaf_hash, model_id
from modyn_dagster.model_store.format.pack import MAGIC
from tests.examples import examples
from tests.model_store.lineages import moved, network

ID = "5" * 64
SMALL = {f"a.{n}": torch.arange(1040.0) + n for n in range(3)} | {"b": torch.ones(2300, dtype=torch.int16), "c": torch.ones(9)}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


def pack_of(header: object, data: bytes = b"", *, announced: int | None = None) -> bytes:
    """A packed file; a header in the form of a mapping names the hash function unless it does so itself."""
    header = {"hashing": "blake3"} | header if isinstance(header, dict) else header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    packed = zstandard.ZstdCompressor(write_content_size=True).compress(text)
    end = struct.pack("<32sQQ8s", hashlib.sha256(packed).digest(), len(packed), announced or len(text), MAGIC)
    return MAGIC + data + packed + end


def planted(store: ModelStore, content: bytes, model: str = ID) -> str:
    path = store.root / model[:2] / f"{model}.pack"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return model


@pytest.mark.parametrize("compress", [True, False])
def test_the_damaged_tensor_is_named_also_in_the_base(store, compress):
    first = network()
    base = store.save(first, strategy=Snapshot(compress=compress))
    model = store.save(moved(first, 1), base=base, strategy="delta")
    with_entry = store.repository.open(base)
    entry = with_entry.entries["layers.1.weight"]
    content = bytearray(with_entry.path.read_bytes())
    content[entry.start + 5] ^= 1
    with_entry.path.write_bytes(content)
    expected = r"chunk 0 of tensor 'layers\.1\.weight' with XXH3" if compress else r"tensor 'layers\.1\.weight' with hash"
    for each in (base, model):
        with pytest.raises(CorruptFile, match=f"expected {expected}") as caught:
            store.load(each)
        assert caught.value.path == str(with_entry.path)


def test_unverified_means_that_bytes_stored_as_they_are_come_as_they_are(store):
    first = network()
    model = store.save(first, strategy=Snapshot(compress=False))
    path = store.info(model).path
    content = bytearray(path.read_bytes())
    content[store.repository.open(model).entries["layers.1.weight"].start] ^= 1
    path.write_bytes(content)
    found = store.load(model, verify=False)
    assert [name for name, tensor in found.items() if not torch.equal(tensor, first[name])] == ["layers.1.weight"]


def test_bits_of_a_frame_that_mean_nothing_are_found_too(store):
    # Bit 4 of a frame's first byte is unused (RFC 8878, 3.1.1.1.1.3): what it holds decompresses all the same.
    model = store.save({"a": torch.zeros(2000)}, strategy=Snapshot(compress=True))
    path = store.info(model).path
    content = bytearray(path.read_bytes())
    start = content.index(zstandard.FRAME_HEADER)
    frame = bytes(content[start : store.repository.open(model).entries["a"].end])
    content[start + 4] ^= 1 << 4
    path.write_bytes(content)
    assert zstandard.ZstdDecompressor().decompress(frame) == zstandard.ZstdDecompressor().decompress(bytes(content[start:]))
    with pytest.raises(CorruptFile, match="chunk 0 of tensor 'a'"):
        store.load(model)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
SIZES = st.integers(-1, 60) | st.sampled_from([2**31, 2**62, 2**64])
ROWS = st.tuples(
    st.sampled_from(["float32", "uint8", "complex128", "os.system"]),
    st.lists(SIZES, max_size=3),
    st.sampled_from([ID, "x"]),
    st.sampled_from(["raw", "planes", "xor", "subtract", "elsewhere"]),
    SIZES,
    SIZES,
    st.none() | st.sampled_from([ID, "../../x"]),
    st.none() | st.just(ID),
).map(list)


@pytest.mark.long
@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.sampled_from("abc"), ROWS | JSON, max_size=3),
    JSON | st.just({"strategy": "delta"}),
    st.binary(max_size=60),
)
def test_a_hostile_header_is_an_error_of_ours(tensors, about, data):
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        header = {"about": about, "order": sorted(tensors), "ties": {}, "tensors": tensors}
        model = planted(store, pack_of(header, data))
        with pytest.raises(ModynError):
            store.load(model)


def lying(store: ModelStore, rows: dict[str, list[Any]], data: bytes = b"", about: dict[str, Any] | None = None) -> str:
    """A file with the name its header asks for: everything is consistent but what the test lies about."""
    model = model_id({name: row[2] for name, row in rows.items()}, list(rows), {})
    header = {"about": about or {"strategy": "delta"}, "order": list(rows), "ties": {}, "tensors": rows}
    return planted(store, pack_of(header, data), model)


def test_a_plane_that_announces_more_than_its_chunk_allocates_nothing(store):
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(50 << 20))
    n = 1 << 20
    assert len(bomb) < n
    data = bomb + table([[bomb]])
    model = lying(store, {"a": ["uint8", [n], ID, "planes", 8, 8 + len(data), None, None]}, data)
    with pytest.raises(CorruptFile, match=r"chunk 0 of tensor 'a' as a plane of 1048576 bytes, found a frame of 52428800"):
        store.load(model)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_allocated(store):
    # Each chunk of zeros takes a few bytes: the file is small, what it stands for is not.
    n_chunks = 1 << 20
    lengths = table([[b""]] * n_chunks)
    model = lying(store, {"a": ["uint8", [n_chunks << 20], ID, "planes", 8, 8 + len(lengths), None, None]}, lengths)
    with pytest.raises(CorruptFile, match="the memory of this machine"):
        store.load(model)


def test_a_header_that_announces_too_much_is_refused(store):
    model = planted(store, pack_of(b"{}", announced=2**60))
    with pytest.raises(CorruptFile, match="the end of a model's file"):
        store.load(model)
    planted(store, pack_of(b"{}", announced=3))
    with pytest.raises(CorruptFile, match="another length than announced"):
        store.load(model)


def test_cycles_of_bases_end_with_an_error(store):
    leaf = leaf_hash(torch.uint8, [1], memoryview(b"\1"))
    data = b"\0" + table([[b"\0"]])
    model = model_id({"a": leaf}, ["a"], {})
    assert lying(store, {"a": ["uint8", [1], leaf, "xor", 8, 8 + len(data), model, leaf]}, data) == model
    with pytest.raises(CorruptFile, match="found more, or a cycle of bases"):
        store.load(model)
    assert len(store.verify()) == 1
    other = lying(store, {"a": ["uint8", [1], leaf, "elsewhere", 0, 0, model, None]})
    assert other == model
    with pytest.raises(CorruptFile, match="no such tensor there"):
        store.load(model)


def test_cycles_of_provenances_end_with_an_error(store):
    rows = {"a": ["uint8", [1], ID]}
    about = {"strategy": "provenance", "provenance": {}, "base": model_id({"a": ID}, ["a"], {})}
    model = lying(store, rows, about=about)
    with pytest.raises(CorruptFile, match="a cycle of bases"):
        store.load(model, retrain=True)
    recipe = Provenance(train="benchmarks.none:train", seconds=1, probed=True)
    with pytest.raises(CorruptFile, match="a cycle of bases"):
        store.save({"b": torch.ones(1)}, base=model, provenance=recipe)


@pytest.mark.parametrize("home", ["../../etc/passwd", "", ID, "0" * 63 + "/"])
def test_a_home_is_never_a_path(store, home):
    model = lying(store, {"a": ["uint8", [1], ID, "elsewhere", 0, 0, home, None]})
    with pytest.raises(ModynError, match="found no model of that id"):
        store.load(model)
    assert isinstance(store.verify()[0], CorruptFile)


def test_verify_reports_progress_and_each_damage(store):
    base = store.save(network())
    models = [store.save(moved(network(), n), base=base, strategy=Delta()) for n in range(3)]
    path = store.info(models[1]).path
    path.write_bytes(path.read_bytes()[:-1])
    seen: list[tuple[int, int]] = []
    damage = store.verify(progress=lambda done, of: seen.append((done, of)))
    assert [Path(error.path).stem for error in damage] == [models[1]]
    assert seen == [(n, 4) for n in range(1, 5)]
