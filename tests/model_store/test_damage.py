"""Damaged files, and files that never were a model: an error that names the fault, and nothing else."""

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile, ModynError, StorageError
from modyn_dagster.model_store import ModelStore

STATE = {"a.weight": torch.arange(8.0), "a.bias": torch.ones(2, dtype=torch.int16), "c": torch.ones(3, dtype=torch.complex128)}
ID = "5" * 64


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


def place_of(path: Path, name: str) -> tuple[int, int]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    start, end = json.loads(content[8 : 8 + length])[name]["data_offsets"]
    return 8 + length + start, 8 + length + end


@pytest.mark.parametrize("name", list(STATE))
def test_the_damaged_tensor_is_named(store: ModelStore, name: str) -> None:
    model = store.save(STATE)
    path = store.info(model).path
    start, end = place_of(path, name)
    content = bytearray(path.read_bytes())
    content[(start + end) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=f"tensor '{name}' with hash"):
        store.load(model)


def test_the_tensor_a_truncation_hits_is_named(store: ModelStore) -> None:
    model = store.save(STATE)
    path = store.info(model).path
    path.write_bytes(path.read_bytes()[: place_of(path, "a.weight")[1] - 1])
    with pytest.raises(CorruptFile, match=r"expected tensor 'a\.weight' up to byte"):
        store.load(model)


def test_verify_walks_everything_and_names_each_damage(store: ModelStore) -> None:
    models = [store.save({"w": torch.full((4,), float(i))}) for i in range(5)]
    for model in models[1:3]:
        path = store.info(model).path
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    damage = store.verify()
    assert {Path(error.path).stem for error in damage} == set(models[1:3])
    assert store.verify(models[0]) == []


def planted(store: ModelStore, content: bytes) -> None:
    path = store.root / ID[:2] / f"{ID}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F99", "C64"]) | JSON,
        "shape": st.lists(st.integers(-1, 4) | st.just(2**62), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | JSON,
    }
)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys(("order", "ties", "viewed", "hashes", "hashing"), JSON)) | JSON


@given(st.dictionaries(st.text(max_size=3), ENTRIES | JSON, max_size=3), RECORDS | JSON, st.binary(max_size=40))
def test_a_hostile_header_is_an_error_of_ours(tensors: dict[str, Any], record: object, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        planted(store, file_of(tensors | {"__metadata__": {"modyn": json.dumps(record)}}, data))
        with pytest.raises(ModynError):
            store.load(ID)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a header of at most 0 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "9223372036854775808 bytes announced"),
        (file_of(b"[" * 100_000), "expected a JSON header, found RecursionError"),
        (file_of(b'{"a":1,"a":2}'), "a name occurs twice"),
        (file_of(b"[]"), "expected a JSON object as header, found a list"),
        (file_of(b'{"a":' + b"1" * 5000 + b"}"), "expected a JSON header, found ValueError"),
        (file_of({"__metadata__": {"modyn": 3}}), "expected metadata of texts"),
        (file_of({"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]}}), "tensor 'a' up to byte"),
        (file_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "dtype, shape and place of tensor 'a'"),
        (file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"), "tensor 'a' at byte 0"),
        (
            file_of({n: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for n in "ab"}, b"1234"),
            "tensor 'b' at byte 4 of the data, found byte 0",
        ),
        (file_of({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"12"), "expected 1 bytes of tensors, found 2"),
        (file_of({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"), "expected the record of a model"),
    ],
)
def test_each_lie_of_a_header_is_told(store: ModelStore, content: bytes, message: str) -> None:
    planted(store, content)
    with pytest.raises(CorruptFile) as caught:
        store.load(ID)
    assert message in str(caught.value)


def record_of(**changes: object) -> Callable[[str], bytes]:
    """A file whose record differs in one point from that of ``{"a": uint8[1]}``."""

    def build(leaf: str) -> bytes:
        record = {"order": ["a"], "ties": {}, "viewed": {}, "hashes": {"a": leaf}, "hashing": "blake3"} | changes
        entry = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
        return file_of({"__metadata__": {"modyn": json.dumps(record)}, "a": entry}, b"\x07")

    return build


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (record_of(order=["a", "a"]), "record of other names"),
        (record_of(order=[]), "record of other names"),
        (record_of(order=["a", "b"], ties={"b": "c"}), "record of other names"),
        (record_of(order=["a", "b"], ties={"b": "b"}), "record of other names"),
        (record_of(ties={"b": "a"}), "record of other names"),
        (record_of(viewed={"a": "complex128"}), "tensor 'a' as bytes of a known dtype"),
        (record_of(viewed={"a": "os.system"}), "tensor 'a' as bytes of a known dtype"),
        (record_of(hashes={"a": 3}), "expected the record of a model"),
        (record_of(), "expected the record of model 5555"),
    ],
)
def test_each_lie_of_a_record_is_told(store: ModelStore, build: Callable[[str], bytes], message: str) -> None:
    leaf = store.info(store.save({"a": torch.tensor([7], dtype=torch.uint8)})).tensors[0].hash
    planted(store, build(leaf))
    with pytest.raises(CorruptFile) as caught:
        store.load(ID)
    assert message in str(caught.value)


def test_a_header_that_promises_more_than_the_file_allocates_nothing(store: ModelStore) -> None:
    huge = 2**50
    planted(store, file_of({"a": {"dtype": "U8", "shape": [huge], "data_offsets": [0, huge]}}, b"1"))
    with pytest.raises(StorageError, match=f"up to byte {huge} of the data"):
        store.load(ID)
