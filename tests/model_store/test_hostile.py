"""Files made to mislead: an error of ours, soon, in little memory, and nothing of others touched."""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile, ModynError, StorageError
from modyn_dagster.model_store import ModelStore, Snapshot
from modyn_dagster.model_store.format.hash_tree import leaf_hash, model_id
from tests.examples import examples
from tests.model_store.test_pack_damage import pack_of, planted
from tests.model_store.test_reading_on import documents_of

ROOT = Path(__file__).resolve().parents[2]
ONE = leaf_hash(torch.uint8, [1], memoryview(b"1"))
ROW = ["uint8", [1], ONE, "raw", 8, 9, None, None]
ABOUT = {"strategy": "delta"}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


def lying(store: ModelStore, rows: Mapping[str, Any], data: bytes = b"", about: object = ABOUT) -> str:
    """A packed model whose id is that of what it says."""
    model = model_id({name: row[2] for name, row in rows.items()}, list(rows), {})
    return planted(store, pack_of({"about": about, "order": list(rows), "ties": {}, "tensors": rows}, data), model)


def plain(store: ModelStore, name: str, about: str) -> str:
    """A plain snapshot of one byte whose id is that of what it says."""
    model = model_id({name: ONE}, [name], {})
    content = {"order": [name], "ties": {}, "viewed": {}, "hashes": {name: ONE}, "hashing": "blake3"}
    metadata = {"format": "pt", "modyn": json.dumps(content, separators=(",", ":"))}
    metadata |= {"modyn.about": about, "modyn.sum": hashlib.sha256(about.encode()).hexdigest()}
    place = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    text = json.dumps({"__metadata__": metadata, name: place}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = store.root / model[:2] / f"{model}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"1")
    return model


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", [10**7]), ("float32", [2**45]), ("float64", [500]), ("float32", [10, 100])]
)
@pytest.mark.parametrize("compress", [False, True])
def test_a_reference_to_a_tensor_of_another_kind_is_refused(store, dtype, shape, compress):
    base = store.save({"a": torch.randn(1000)}, strategy=Snapshot(compress=compress))
    model = lying(store, {"z": [dtype, shape, store.info(base).tensors[0].hash, "elsewhere", 0, 0, base, None]})
    for verify in (True, False):
        with pytest.raises(CorruptFile, match=r"tensor 'z' as one of its kind|the memory of this machine"):
            store.load(model, verify=verify)
    assert [Path(damage.path).stem for damage in store.verify()] == [model]


def test_a_shape_of_very_many_dimensions_takes_no_time(store):
    model = lying(store, {"a": ["float32", [2**62] * 40_000, "5" * 64, "raw", 8, 12, None, None]}, b"1234")
    with pytest.raises(CorruptFile, match="dtype, shape and place of tensor 'a'"):
        store.load(model)
    with pytest.raises(StorageError, match="'a' has 1025 dimensions"):
        store.save({"a": torch.ones([1] * 1025)})
    deep = torch.ones([1] * 1024)
    assert store.load(store.save({"a": deep}))["a"].shape == deep.shape


@pytest.mark.soak("laws-models")
@pytest.mark.long
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("names", [["x" * (33 << 20)], [f"{n:05} " * 700 for n in range(8_000)]], ids=["long", "many"])
def test_names_that_could_not_be_read_again_are_refused_before_anything_is_there(store, names, compress):
    value = torch.ones(1, dtype=torch.uint8)
    with pytest.raises(StorageError, match="names and shapes of the tensors take"):
        store.save(dict.fromkeys(names, value), strategy=Snapshot(compress=compress))
    assert store.list() == []
    assert not list(store.root.rglob("*.tmp"))


def test_half_a_character_is_refused_wherever_it_stands(store):
    models = [plain(store, "\ud800", '{"strategy":"snapshot"}'), plain(store, "a", r'{"strategy":"\ud800"}')]
    models.append(lying(store, {"\udfff": ROW}, b"1"))
    models.append(lying(store, {"b": ROW}, b"1", {"strategy": "\ud800"}))
    for model in models:
        with pytest.raises(CorruptFile):
            store.load(model)
    assert len(store.verify()) == len(models)
    # A backslash before these letters is none.
    assert list(store.load(store.save({r"\ud800": torch.ones(1)}, strategy=Snapshot(compress=True)))) == [r"\ud800"]


@given(st.integers(1, 1100), st.booleans())
@settings(max_examples=examples(40))
def test_json_of_any_depth_is_read_or_refused(depth, packed):
    nested = '{"strategy":"snapshot","architecture":{"factory":"a:b","args":{"a":' + "[" * depth + "]" * depth + "}}}"
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        if packed:
            model = model_id({"a": ONE}, ["a"], {})
            row = f'{{"a":["uint8",[1],"{ONE}","raw",8,9,null,null]}}'
            header = f'{{"about":{nested},"order":["a"],"ties":{{}},"tensors":{row},"hashing":"blake3"}}'
            planted(store, pack_of(header.encode(), b"1"), model)
        else:
            model = plain(store, "a", nested)
        try:
            assert store.load(model)["a"].item() == ord("1")
        except ModynError:
            assert store.verify()


@pytest.mark.parametrize("architecture", [{}, {"factory": 1, "args": {}}, {"factory": "a:b"}, {"factory": "a:b", "args": []}, []])
def test_an_architecture_that_is_none_is_refused(store, architecture):
    model = lying(store, {"a": ROW}, b"1", {"strategy": "snapshot", "architecture": architecture})
    with pytest.raises(CorruptFile, match="the metadata of a model"):
        store.info(model)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 9999, b"{}", b'{"threads": 1000000000}', b"1" * 5000])
def test_a_document_that_is_no_environment_is_an_error_of_ours(store, content):
    digest = hashlib.sha256(content).hexdigest()
    path = store.root / "documents" / digest[:2] / digest
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    model = lying(store, {"a": ROW}, b"1", {"strategy": "snapshot", "environment": digest})
    with pytest.raises(CorruptFile):
        store.environment(model)
    for other in ("../../../etc/passwd", "x" * 64, "٣" * 64):
        with pytest.raises(CorruptFile, match="no such document"):
            store.repository.documents.load(other)


def test_an_environment_of_a_billion_threads_is_refused(store):
    honest = store.save({"a": torch.ones(1)})
    [document] = documents_of(store)
    content = json.dumps(json.loads(document.read_bytes()) | {"threads": 10**9}, sort_keys=True)
    digest = store.repository.documents.save(content)
    model = lying(store, {"a": ROW}, b"1", {"strategy": "snapshot", "environment": digest})
    with pytest.raises(CorruptFile, match="the threads of an environment are 1 to 4096"):
        store.environment(model)
    assert store.environment(honest) is not None


def test_extra_state_that_is_only_announced_is_none(store):
    model = lying(store, {"\0extra": ROW[:3]}, about={"strategy": "provenance", "provenance": {}})
    assert store.load_extra(model) is None
    with pytest.raises(ModynError):
        store.load(model, retrain=True)


def test_gc_leaves_what_is_not_of_a_store(store):
    mine = [
        store.root / "documents" / "mine" / "thesis.txt",
        store.root / "work" / ".draft.tmp",
        store.root / "documents" / "notes",
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert store.gc() == []
    assert all(path.exists() for path in mine)


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store import ModelStore
import torch
store = ModelStore(sys.argv[2], threads=1)
store.save({"a": torch.ones(3)})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
for model in store.list():
    try:
        print(len(store.load(model)))
    except CorruptFile:
        print("refused")
store.save({"a": torch.ones(4)})
"""


@pytest.mark.soak("laws-models")
@pytest.mark.process
def test_bombs_are_refused_in_little_memory(store):
    lists = b'{"about":{"a":[' + b"[]," * (10 << 20) + b"0]}}"
    planted(store, pack_of(lists), "1" * 64)
    planted(store, pack_of({"about": ABOUT, "order": ["a"] * (4 << 20), "ties": {}, "tensors": {}}), "2" * 64)
    with open(store.root / "tensors.index", "wb") as index:
        index.truncate(1 << 40)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(ROOT), str(store.root)], capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.split()) == ["1", "refused", "refused"], done.stderr
    assert done.returncode == 0, done.stderr
