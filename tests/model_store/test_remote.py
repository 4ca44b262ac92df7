"""A store behind fsspec obeys the laws of a local one: exact, damage named, deleting breaks nobody, ``gc`` removes the rest."""

import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError, CorruptFile, ModelInUse, StorageError, UnknownModel, WriteFailed, without_secrets
from modyn_dagster.files.objects import Address
from modyn_dagster.model_store import Delta, ModelStore, Provenance, Snapshot
from tests.examples import examples
from tests.model_store.lineages import lineages, moved, network
from tests.model_store.states import assert_exact, flipped_bit

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def fresh_root(scheme: str) -> Iterator[str]:
    """A URL where nothing is yet."""
    if scheme == "memory":
        name = uuid.uuid4().hex
        yield f"memory://models/{name}"
        with suppress(FileNotFoundError):
            fsspec.filesystem("memory").rm(f"/models/{name}", recursive=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"{scheme}://{folder}/models"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_root(request.param) as root:
        yield root


@pytest.fixture
def remote() -> Iterator[ModelStore]:
    with fresh_root("memory") as root:
        yield ModelStore(root)


def change(store: ModelStore, model: str, content: bytes | None = None) -> bytes:
    """Return the content of a model's file, and replace it."""
    url = str(store.info(model).path)
    with fsspec.open(url, "rb") as file:
        before = file.read()
    if content is not None:
        with fsspec.open(url, "wb") as file:
            file.write(content)
    return bytes(before)


@settings(max_examples=examples(15))
@given(st.sampled_from(["memory", "file"]), lineages(), st.randoms(use_true_random=False))
def test_mixed_lineages_come_back_bit_for_bit_whatever_is_deleted(scheme, lineage, random):
    with fresh_root(scheme) as root:
        store, base, saved = ModelStore(root), None, {}
        for state, strategy in lineage:
            base = store.save(state, base=base, strategy=strategy)
            saved[base] = state
        another = ModelStore(root)
        assert another.list() == sorted(saved)
        order = list(saved)
        random.shuffle(order)
        for gone in [None, *order]:
            if gone is not None:
                store.delete(gone, rebase=True)
                del saved[gone]
            for model, state in saved.items():
                assert_exact(another.load(model), state)
        assert another.list() == [] == another.verify()


@settings(max_examples=examples(25))
@given(st.data())
def test_a_flipped_bit_anywhere_is_found(data):
    with fresh_root("memory") as root:
        store = ModelStore(root)
        first = network(width=20)
        base = store.save(first, strategy=Snapshot(compress=data.draw(st.booleans())))
        child = store.save(moved(first, 1), base=base, strategy="delta")
        damaged = data.draw(st.sampled_from([base, child]))
        content = change(store, damaged)
        change(store, damaged, flipped_bit(content, data.draw(st.integers(0, 8 * len(content) - 1))))
        with pytest.raises(CorruptFile, match="memory://models/"):
            store.load(damaged)
        assert damaged in {Path(error.path).stem for error in store.verify()}
        assert store.save(first if damaged == base else moved(first, 1)) == damaged
        assert store.verify() == []


def test_damage_is_named_by_tensor_and_url(url):
    store = ModelStore(url)
    model = store.save({"a": torch.arange(8.0), "b": torch.arange(8.0) + 1}, strategy=Snapshot(compress=False))
    content = change(store, model)
    change(store, model, flipped_bit(content, 8 * (len(content) - 1)))
    with pytest.raises(CorruptFile, match=f"{model}.safetensors: expected tensor 'b' with hash"):
        store.load(model)
    change(store, model, content[:-1])
    with pytest.raises(CorruptFile, match="tensor 'b' up to byte"):
        store.load(model)


def test_what_others_need_is_refused_or_rebased(url):
    store, first = ModelStore(url), network()
    base = store.save(first, strategy=Snapshot(compress=True))
    second = moved(first, 1)
    child = store.save(second, base=base, strategy="delta")
    with pytest.raises(ModelInUse):
        store.delete(base)
    store.delete(base, rebase=True)
    assert store.list() == [child]
    assert_exact(store.load(child), second)
    with pytest.raises(UnknownModel, match=f"{store.root}: no model '{base}'"):
        store.load(base)


def test_equal_tensors_are_stored_once_and_the_index_may_go(remote):
    first = network(width=200)
    one = remote.save(first, strategy=Snapshot(compress=True))
    other = remote.save(first | {"more": torch.ones(3)}, strategy=Snapshot(compress=True))
    assert remote.info(other).needs == (one,)
    fs = fsspec.filesystem("memory")
    for path in fs.find(str(remote.root / "tensors")):
        fs.rm_file(path)
    third = remote.save(first | {"more": torch.ones(4)}, strategy=Snapshot(compress=True))
    assert ModelStore(str(remote.root)).info(third).needs in ((), (one,))
    remote.gc(older_than=0)
    fourth = ModelStore(str(remote.root)).save(first | {"more": torch.ones(5)}, strategy=Snapshot(compress=True))
    assert remote.info(fourth).needs != ()
    assert remote.verify() == []


class _Failing(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Refuses its n-th change, as a place that is full or gone would; what was done before stays."""

    left = 0

    def _step(self) -> None:
        type(self).left -= 1
        if type(self).left == 0:
            raise OSError(28, "No space left on device, key SECRETKEY")

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        content = Path(lpath).read_bytes()
        self.pipe_file(rpath, content[: len(content) // 2])
        self._step()
        super().put_file(lpath, rpath, **kwargs)

    def mv(self, *args: Any, **kwargs: Any) -> None:
        self._step()
        super().mv(*args, **kwargs)


@pytest.mark.parametrize("strategy", [Snapshot(compress=False), Delta()], ids=str)
def test_a_save_that_is_refused_anywhere_leaves_a_readable_store(remote, monkeypatch, strategy):
    first, second = network(), moved(network(), 1)
    base = remote.save(first)
    monkeypatch.setattr(remote.repository.folder, "filesystem", _Failing())
    failed = 0
    for left in range(1, 20):
        _Failing.left = left
        try:
            model = remote.save(second, base=base, strategy=strategy)
        except WriteFailed as error:
            failed += 1
            assert "No space left on device" in str(error)
            assert remote.list() == [base]
            continue
        break
    _Failing.left = 10**6
    assert failed >= 4
    assert remote.list() == sorted([base, model])
    assert remote.verify() == []
    assert not any(path.name.endswith(".tmp") for path in remote.gc(older_than=0))
    assert not [path for path in remote.repository.folder.files() if path.name.endswith(".tmp")]
    assert_exact(remote.load(model), second)


def test_a_folder_that_is_not_there_yet_is_empty_and_a_place_that_is_not_there_is_an_error(remote, monkeypatch):
    def refused(*args, **kwargs):
        raise FileNotFoundError("no such bucket")

    assert (remote.list(), remote.verify(), remote.gc()) == ([], [], [])
    with monkeypatch.context() as patched:
        patched.setattr(fsspec.get_filesystem_class("memory"), "find", refused)
        for look in (remote.list, remote.verify, remote.gc):
            with pytest.raises(StorageError, match="no such bucket"):
                look()
    state = network()
    assert_exact(remote.load(remote.save(state)), state)


def test_a_store_that_cannot_be_reached_is_no_empty_one():
    """Nobody listens at this port."""
    store = ModelStore("http://127.0.0.1:9/models")
    for look in (store.list, store.verify, store.gc, store.tree):
        with pytest.raises(StorageError, match=r"http://127\.0\.0\.1:9/models: \w+"):
            look()


def test_gc_leaves_what_is_not_the_stores(remote):
    fs = fsspec.filesystem("memory")
    base, theirs = remote.save(network()), ("a/b.tmp", "documents/mine", "tensors/weights.npy", "going/home", "ab/z")
    for name in theirs:
        fs.pipe_file(f"{remote.root}/{name}", b"mine")
    assert remote.gc(older_than=0) == []
    child = remote.save(moved(network(), 1), base=base, strategy="delta")
    remote.delete(child)
    assert remote.gc(older_than=0) == []
    assert all(fs.cat_file(f"{remote.root}/{name}") == b"mine" for name in theirs)


def test_gc_leaves_what_a_writer_of_now_may_have_written(remote):
    fs = fsspec.filesystem("memory")
    model = remote.save(network())
    root = str(remote.root)
    for name in ("00/.x.pack.12345678.tmp", "documents/00/" + "0" * 64, "going/" + "0" * 64):
        fs.pipe_file(f"{root}/{name}", b"x")
    assert remote.gc() == []
    assert len(remote.gc(older_than=0)) == 3
    assert remote.environment(model) is not None


def test_who_saves_while_the_base_goes_ends_with_a_whole_model(remote):
    """The remover looked for children before the save committed: the saver sees its mark."""
    base = remote.save(network(), strategy=Snapshot(compress=True))
    second = moved(network(), 1)
    folder = remote.repository.folder
    with folder.removal(base):
        child = remote.save(second, base=base, strategy="delta")
        assert remote.info(child).needs == ()
        assert "was removed" in remote.info(child).reason
        remote.repository.remove(base)
    assert_exact(remote.load(child), second)
    assert not folder.files("going")


def test_a_provenance_whose_base_goes_is_not_saved(remote):
    base = remote.save(network())
    with remote.repository.folder.removal(base), pytest.raises(UnknownModel, match=base):
        remote.save(
            network(1), base=base, strategy="provenance", provenance=Provenance(train="tests.model_store.trainings:train")
        )
    assert remote.list() == [base]


def test_who_loads_while_the_base_goes_reads_what_was_stored_instead(remote, monkeypatch):
    base = remote.save(network(), strategy=Snapshot(compress=True))
    second = moved(network(), 1)
    child = remote.save(second, base=base, strategy="delta")
    folder, another = remote.repository.folder, ModelStore(str(remote.root))
    real = folder.descriptor

    def late(path: Any) -> int:
        if base in another.list():
            another.delete(base, rebase=True)
        return int(real(path))

    monkeypatch.setattr(folder, "descriptor", late)
    assert_exact(remote.load(child), second)
    assert remote.list() == [child]


def test_savers_and_a_remover_side_by_side(remote):
    first = network(width=40)
    base = remote.save(first, strategy=Snapshot(compress=True))
    states = [moved(first, n) for n in range(12)]
    saved: dict[str, Any] = {}

    def save(part: int) -> None:
        for state in states[part::3]:
            with suppress(UnknownModel):
                saved[remote.save(state, base=base, strategy="delta")] = state

    threads = [threading.Thread(target=save, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    remote.delete(base, rebase=True)
    for thread in threads:
        thread.join()
    assert remote.verify() == []
    for model, state in saved.items():
        assert_exact(remote.load(model), state)


def test_information_and_differences_read_no_weights(remote, monkeypatch):
    first = {name: tensor.repeat(40, 1) if tensor.ndim == 2 else tensor for name, tensor in network().items()}
    one = remote.save(first)
    other = remote.save(moved(first, 1, only="layers.1"), base=one, strategy="changed_layers")
    n_read = 0
    real = MemoryFileSystem.cat_file

    def counted(self: MemoryFileSystem, *args: Any, **kwargs: Any) -> bytes:
        nonlocal n_read
        found = real(self, *args, **kwargs)
        n_read += len(found)
        return bytes(found)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    assert remote.info(one).full_bytes > 10 << 20
    assert remote.diff(one, other) == ["layers.1.weight", "layers.1.bias"]
    assert remote.tree() == {None: [one], one: [other]}
    assert 0 < n_read < 2 << 20


@pytest.mark.soak("laws-models")
@pytest.mark.process
def test_another_process_reads_a_file_url(tmp_path):
    url = f"file://{tmp_path}/a folder"
    state = network()
    model = ModelStore(url).save(state, strategy=Snapshot(compress=True))
    program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from modyn_dagster.model_store import ModelStore
from tests.model_store.lineages import network
from tests.model_store.states import assert_exact
store = ModelStore({url!r})
assert store.list() == [{model!r}]
assert_exact(store.load({model!r}), network())
print(store.save(network(1), base={model!r}, strategy="delta"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert_exact(ModelStore(url).load(done.stdout.strip()), network(1))
    assert ModelStore(tmp_path / "a folder").list() == ModelStore(url).list()


@pytest.mark.parametrize("options", [{"secret": "SECRETKEY"}, {"client": {"keys": ("id", "SECRETKEY")}}], ids=["plain", "nested"])
def test_nothing_shows_a_password(monkeypatch, options):
    assert without_secrets("no route to sftp://ann:pa:ss@host:22/x?token=1 now") == "no route to sftp://host:22/x now"
    assert str(Address("sftp:", "host", "models") / "ab" / "x.pack") == "sftp://host/models/ab/x.pack"
    store = ModelStore(f"memory://models/{uuid.uuid4().hex}", storage_options=options)
    monkeypatch.setattr(store.repository.folder, "filesystem", _Failing())
    _Failing.left = 1
    with pytest.raises(WriteFailed) as caught:
        store.save(network())
    assert "SECRETKEY" not in str(caught.value)
    assert "SECRETKEY" not in "".join(traceback.format_exception(caught.value))
    _Failing.left = 10**6
    model = store.save(network())
    assert "SECRETKEY" not in str(store.info(model)) + str(store.root)
    assert b"SECRETKEY" not in change(store, model)
    with pytest.raises(ConfigError) as refused:
        ModelStore("nonsense://ann:SECRETKEY@host/models")
    assert "SECRETKEY" not in str(refused.value)


@pytest.mark.parametrize("model", ["../" + "0" * 61, "0" * 63, "0" * 64 + "/x", "", "A" * 64])
def test_no_id_leads_out_of_the_root(url, model):
    with pytest.raises(UnknownModel):
        ModelStore(url).load(model)


def test_names_that_lead_elsewhere_are_no_models(remote):
    model = remote.save(network())
    fs = fsspec.filesystem("memory")
    content = change(remote, model)
    for name in (
        f"zz/{model}.pack",
        f"{model}.pack",
        f"{model[:2]}/../{model[:2]}/{'1' * 64}.pack",
        f"{model[:2]}/deep/{model}.pack",
    ):
        fs.pipe_file(f"{remote.root}/{name}", content)
    assert remote.list() == [model]
    with pytest.raises(ConfigError, match="must not have"):
        ModelStore("memory://models/../../etc")


def test_a_place_that_does_not_answer_is_an_error_of_ours(remote, monkeypatch):
    model = remote.save(network())

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", refuse)
    with pytest.raises(StorageError, match=r"memory://models/.*: TimeoutError: no answer"):
        remote.load(model)
