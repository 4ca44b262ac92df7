import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import modyn_dagster.model_store as package
from modyn_dagster.errors import CorruptFile, StorageError, UnknownModel, WriteFailed
from modyn_dagster.model_store import ModelStore, Snapshot
from modyn_dagster.model_store.format.hash_tree import model_id
from modyn_dagster.model_store.format.tensors import VIEWED_NAMES
from tests.model_store.states import DTYPES, STATES, assert_exact, raw
from tests.model_store.test_pack_damage import pack_of, planted


class Annotated(Tensor):
    """A tensor whose bytes are not all there is to it."""


ABSENT = "0" * 64


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


def small_state() -> dict[str, Tensor]:
    return {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.ones(2), "steps": torch.tensor(7)}


@given(STATES)
def test_what_comes_back_is_what_was_saved_bit_for_bit(state: dict[str, Tensor]) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        model = store.save(state)
        assert_exact(store.load(model), state)
        assert_exact(store.load(store.save(store.load(model))), state)
        assert store.list() == [model]


@given(STATES, STATES)
def test_models_have_equal_ids_exactly_when_they_are_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    def content(state: dict[str, Tensor]) -> list[object]:
        return [(name, tensor.dtype, tuple(tensor.shape), raw(tensor)) for name, tensor in state.items()]

    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        assert (store.save(one) == store.save(other)) == (content(one) == content(other))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_survives_in_no_dimension_and_without_elements(store: ModelStore, dtype: torch.dtype) -> None:
    bits = torch.ones(dtype.itemsize, dtype=torch.uint8)
    state = {"scalar": bits.view(dtype).reshape(()), "empty": bits[:0].view(dtype).reshape(3, 0, 2)}
    assert_exact(store.load(store.save(state)), state)


def test_nan_payloads_and_negative_zeros_survive(store: ModelStore) -> None:
    patterns = torch.tensor([0x7FC00001, 0x7F800001, -0x400000, -(2**31)], dtype=torch.int32)
    found = store.load(store.save({"odd": patterns.view(torch.float32)}))
    assert torch.equal(found["odd"].view(torch.int32), patterns)


def test_lazy_conjugates_and_negatives_are_stored_as_the_values_they_stand_for(store: ModelStore) -> None:
    values = torch.tensor([1 + 2j, -3 - 0j])
    state = {"conjugate": values.conj(), "negative": values.conj().imag, "values": values}
    found = store.load(store.save(state))
    assert torch.equal(found["conjugate"], values.conj().resolve_conj())
    assert torch.equal(found["negative"], torch.tensor([-2.0, 0.0]))
    assert not found["conjugate"].is_conj()


def test_channels_last_and_strided_tensors_come_back_with_the_same_values(store: ModelStore) -> None:
    image = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    state = {"image": image, "every_other": torch.arange(10.0)[::2], "expanded": torch.ones(1).expand(4)}
    assert_exact(store.load(store.save(state)), state)


def test_tied_tensors_are_stored_once_and_come_back_tied(store: ModelStore) -> None:
    weight = torch.randn(100, 100)
    tied = store.save({"encoder": weight, "decoder": weight})
    apart = store.save({"encoder": weight, "decoder": weight.clone()})
    assert tied != apart
    assert store.size(tied) < 1.1 * weight.nbytes < store.size(apart)
    found = store.load(tied)
    found["encoder"][0, 0] = 42.0
    assert found["decoder"][0, 0] == 42.0
    assert store.load(apart)["encoder"].data_ptr() != store.load(apart)["decoder"].data_ptr()


def test_parts_of_one_memory_are_not_ties(store: ModelStore) -> None:
    whole = torch.arange(6.0)
    state = {
        "whole": whole,
        "front": whole[:3],
        "square": whole.reshape(2, 3),
        "bits": whole.view(torch.int32),
        "none": whole[:0],
    }
    found = store.load(store.save(state))
    assert_exact(found, state)
    assert len({tensor.data_ptr() for tensor in found.values() if tensor.numel()}) == 4


def test_a_module_comes_back_working(store: ModelStore) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    again = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    again.load_state_dict(store.load(store.save(module.state_dict())))
    inputs = torch.randn(5, 3)
    assert torch.equal(module(inputs), again(inputs))


def test_the_order_of_names_is_kept_and_is_part_of_the_identity(store: ModelStore) -> None:
    state = small_state()
    turned = dict(reversed(state.items()))
    assert list(store.load(store.save(turned))) == list(turned)
    assert store.save(turned) != store.save(state)


def test_equal_models_are_one_file_of_equal_bytes(tmp_path: Path) -> None:
    one, other = ModelStore(tmp_path / "a"), ModelStore(tmp_path / "b")
    model = one.save(small_state())
    before = one.info(model).path.stat().st_mtime_ns
    assert one.save(small_state()) == other.save(small_state()) == model
    assert one.info(model).path.stat().st_mtime_ns == before
    assert one.info(model).path.read_bytes() == other.info(model).path.read_bytes()


def test_several_writers_of_one_model_at_once_leave_one_sound_file(store: ModelStore) -> None:
    state = {"weight": torch.arange(50_000.0)}
    with ThreadPoolExecutor(8) as pool:
        models = set(pool.map(lambda _: store.save(state), range(16)))
    assert models == set(store.list())
    assert len(models) == 1
    assert store.verify() == []
    assert [path.suffix for path in store.root.glob("??/*") if path.is_file()] == [".safetensors"]


def test_the_file_is_plain_safetensors_to_others(store: ModelStore) -> None:
    state = {
        str(dtype): torch.ones(dtype.itemsize, dtype=torch.uint8).view(dtype) for dtype in DTYPES if dtype not in VIEWED_NAMES
    }
    model = store.save(state)
    path = store.info(model).path
    assert path.relative_to(store.root) == Path(model[:2], f"{model}.safetensors")
    others = load_file(path)
    assert_exact({name: others[name] for name in state}, state)


def test_info_tells_what_is_stored_without_reading_it(store: ModelStore) -> None:
    weight = torch.zeros(2, 3, dtype=torch.float16)
    model = store.save({"a": weight, "b": weight, "c": torch.tensor(1)})
    info = store.info(model)
    assert [(t.name, t.dtype, t.shape, t.tied_to) for t in info.tensors] == [
        ("a", torch.float16, (2, 3), None),
        ("b", torch.float16, (2, 3), "a"),
        ("c", torch.int64, (), None),
    ]
    assert (info.id, info.n_elements, info.n_bytes) == (model, 7, store.size(model))
    assert info.tensors[0].hash == info.tensors[1].hash != info.tensors[2].hash


def test_equal_bytes_of_another_dtype_or_shape_are_another_tensor(store: ModelStore) -> None:
    zeros = [torch.zeros(2, 8), torch.zeros(4, 4), torch.zeros(16), torch.zeros(2, 8, dtype=torch.int32)]
    assert len({store.save({"zeros": tensor}) for tensor in zeros}) == 4


@pytest.mark.parametrize("model", [ABSENT, "", "../../etc/passwd", "ab/../../x", "A" * 64, "0" * 63 + "\n"])
def test_an_id_that_is_not_there_is_an_error_and_never_a_path(store: ModelStore, model: str) -> None:
    store.save(small_state())
    for call in (store.load, store.info, store.size, store.verify, store.delete):
        with pytest.raises(UnknownModel, match="no model"):
            call(model)


def test_a_file_outside_of_the_root_is_never_a_model(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "a" / "models")
    store.save({"w": torch.ones(1)})
    (tmp_path / "evil.pack").write_bytes(b"read by mistake")
    for model in ("../evil", str(tmp_path / "evil"), "..//../evil"):
        for call in (store.load, store.info, store.size, store.delete):
            with pytest.raises(UnknownModel):
                call(model)
    assert (tmp_path / "evil.pack").exists()


def test_a_deleted_model_is_gone_and_the_others_stay(store: ModelStore) -> None:
    gone, kept = store.save(small_state()), store.save({"other": torch.ones(3)})
    store.delete(gone)
    assert store.list() == [kept]
    with pytest.raises(UnknownModel):
        store.load(gone)
    assert_exact(store.load(kept), {"other": torch.ones(3)})


def test_an_empty_store_lists_and_verifies_nothing(store: ModelStore) -> None:
    assert (store.list(), store.verify()) == ([], [])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "'bad' is a int; a model's state holds only tensors"),
        (torch.eye(2).to_sparse(), "only dense tensors can be stored"),
        (torch.empty(2, device="meta"), "only dense tensors can be stored"),
        *(
            # Since torch 2.8.
            [(torch.empty(2, dtype=torch.float4_e2m1fn_x2), "has dtype float4_e2m1fn_x2, which cannot be stored exactly")]
            if hasattr(torch, "float4_e2m1fn_x2")
            else []
        ),
        (torch.ones(2).as_subclass(Annotated), "'bad' is a Annotated, a subclass of Tensor"),
    ],
)
def test_what_is_no_dense_tensor_is_refused_by_name(store: ModelStore, value: Tensor, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        store.save({"good": torch.ones(1), "bad": value})
    assert store.list() == []


@pytest.mark.parametrize("name", ["__metadata__", "\ud800", "\0extra", "\0extra.0"])
def test_a_name_that_cannot_be_written_is_refused(store: ModelStore, name: str) -> None:
    with pytest.raises(StorageError, match="cannot be the name of a tensor"):
        store.save({name: torch.ones(1)})


def test_names_may_nest_deeper_than_any_stack(store: ModelStore) -> None:
    state = {"." * 50_000: torch.ones(1), "a." * 20_000: torch.zeros(1)}
    assert_exact(store.load(store.save(state)), state)


def test_a_disk_that_refuses_leaves_nothing_behind(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteFailed, match="No space left on device"):
        store.save(small_state())
    monkeypatch.undo()
    assert store.list() == []
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


@given(st.sampled_from(["", ".", "a", "a.", "a.b", "a..b", ".a"]), st.sampled_from(["", ".", "a", "a.", "a.b", "a..b", ".a"]))
def test_names_that_differ_in_dots_alone_are_different(one: str, other: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        assert (store.save({one: torch.ones(1)}) == store.save({other: torch.ones(1)})) == (one == other)


def test_what_is_exported_is_what_all_lists() -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018 - raises


@pytest.mark.parametrize(("key", "expected"), [("hashing", "tensors hashed with blake3"), ("modyn.about", "metadata of a model")])
def test_a_header_without_hash_function_or_metadata_is_damage(tmp_path: Path, key: str, expected: str) -> None:
    store = ModelStore(tmp_path)
    model = store.save({"a": torch.arange(3)}, strategy=Snapshot(compress=False))
    path = store.info(model).path
    content = path.read_bytes()
    header = json.loads(content[8 : (start := 8 + int.from_bytes(content[:8], "little"))])
    metadata = header["__metadata__"]
    record = json.loads(metadata["modyn"])
    del (record if key == "hashing" else metadata)[key]
    text = json.dumps(header | {"__metadata__": metadata | {"modyn": json.dumps(record)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    with pytest.raises(CorruptFile, match=expected) as caught:
        store.load(model)
    assert caught.value.path == str(path)


def test_a_packed_header_without_hash_function_is_damage(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    header = json.dumps({"about": {"strategy": "snapshot"}, "order": [], "ties": {}, "tensors": {}}).encode()
    model = planted(store, pack_of(header), model_id({}, [], {}))
    with pytest.raises(CorruptFile, match="tensors hashed with blake3, found None"):
        store.load(model)
