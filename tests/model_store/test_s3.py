"""The laws of a store over the protocol of S3: a server of its own, another process beside, and keys that nobody gets to see."""

import functools
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from s3fs import S3FileSystem

from modyn_dagster.errors import CorruptFile, ModelInUse, ModynError, StorageError, UnknownModel, WriteFailed
from modyn_dagster.model_store import ChangedLayers, Delta, ModelStore, Snapshot
from tests.model_store.lineages import STRATEGIES, moved, network
from tests.model_store.s3 import S3
from tests.model_store.states import assert_exact, flipped_bit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def url(s3: S3) -> str:
    return s3.fresh_url()


@pytest.mark.parametrize(
    "strategies",
    [
        pytest.param([Snapshot(compress=True), ChangedLayers(), Delta()], id="one of a kind"),
        pytest.param(STRATEGIES, id="all", marks=pytest.mark.soak("laws-models")),
    ],
)
def test_a_lineage_of_strategies_comes_back_bit_for_bit_whatever_is_deleted(s3, url, strategies):
    store, another = s3.store(url), s3.store(url)
    assert store.list() == [] == store.verify() == store.gc()
    state, base, saved = network(width=20), None, {}
    for n, strategy in enumerate(strategies):
        base = store.save(state, base=base, strategy=strategy, extra={"step": n})
        saved[base] = state
        state = moved(state, n, only=f"layers.{n % 3}")
    assert another.list() == sorted(saved)
    assert another.load_extra(base) == {"step": len(strategies) - 1}
    assert sum(len(children) for children in another.tree().values()) == len(saved)
    for gone in [None, *list(saved)]:
        if gone is not None:
            store.delete(gone, rebase=True)
            del saved[gone]
        assert another.list() == sorted(saved)
        for model, expected in saved.items():
            assert_exact(another.load(model), expected)
    store.gc(older_than=0)
    assert len(s3.files().find(url)) <= 1


@pytest.mark.soak("laws-models")
def test_what_others_need_is_refused_or_rebased(s3, url):
    store, first = s3.store(url), network()
    base = store.save(first, strategy=Snapshot(compress=True))
    second = moved(first, 1)
    child = store.save(second, base=base, strategy="delta")
    assert store.size(child) < 0.6 * store.size(base)
    with pytest.raises(ModelInUse):
        s3.store(url).delete(base)
    s3.store(url).delete(base, rebase=True)
    assert store.list() == [child]
    assert_exact(store.load(child), second)
    with pytest.raises(UnknownModel, match=f"{url}: no model '{base}'"):
        store.load(base)


@pytest.mark.soak("laws-models")
def test_damage_is_named_by_tensor_and_url_and_put_right(s3, url):
    store, another, files = s3.store(url), s3.store(url), s3.files()
    state = {"a": torch.arange(8.0), "b": torch.arange(8.0) + 1}
    model = store.save(state, strategy=Snapshot(compress=False))
    path = str(store.info(model).path)
    content = files.cat_file(path)
    for damaged, named in (
        (flipped_bit(content, 8 * (len(content) - 1)), "expected tensor 'b' with hash"),
        (content[:-1], "tensor 'b' up to byte"),
        (content[:3], "expected"),
    ):
        files.pipe_file(path, damaged)
        with pytest.raises(CorruptFile, match=f"{path}: .*{named}"):
            another.load(model)
        assert [Path(error.path).stem for error in another.verify()] == [model]
    assert another.save(state) == model
    assert store.verify() == []


@pytest.mark.soak("laws-models")
def test_what_others_did_since_the_last_listing_is_seen(s3, url):
    """Libraries keep listings; sizes and existence in them may be those of yesterday."""
    store, another = s3.store(url), s3.store(url)
    first = network(width=20)
    base = store.save(first, strategy=Snapshot(compress=True))
    child = store.save(moved(first, 1), base=base, strategy="delta")
    assert another.list() == sorted([base, child])
    small = another.size(child)
    store.delete(base, rebase=True)
    assert another.size(child) > small
    assert_exact(another.load(child), moved(first, 1))
    with pytest.raises(UnknownModel):
        another.info(base)
    assert another.save(first, base=child, strategy="delta") == base
    assert_exact(store.load(base), first)


@pytest.mark.soak("laws-models")
def test_a_model_that_is_put_in_parts_comes_back(s3, url, monkeypatch):
    """Large files are put in parts, which the service joins when all have come; here from 10 MB on, to be quick."""
    put = S3FileSystem._put_file
    monkeypatch.setattr(S3FileSystem, "_put_file", functools.partialmethod(put, chunksize=5 << 20))
    store = s3.store(url)
    state = {"weight": torch.arange(3 << 20, dtype=torch.float32), "bias": torch.ones(3)}
    model = store.save(state, strategy=Snapshot(compress=False))
    assert s3.files().info(str(store.info(model).path))["ETag"].endswith('-3"'), "in three parts"
    monkeypatch.undo()
    assert_exact(s3.store(url).load(model), state)


_WRITER = """
import json, sys
given = json.load(sys.stdin)
sys.path.insert(0, given["repository"])
from modyn_dagster.model_store import ModelStore
from tests.model_store.lineages import moved, network
store = ModelStore(given["url"], storage_options=given["options"])
print("ready", flush=True)
print(json.dumps([store.save(moved(network(), n), base=given["base"], strategy="delta") for n in range(4, 12)]))
"""


@pytest.mark.soak("kills-store")
def test_two_writers_in_two_processes_and_a_remover(s3, url):
    store = s3.store(url)
    base = store.save(network(), strategy=Snapshot(compress=True))
    given = {"repository": str(ROOT), "url": url, "options": s3.options, "base": base}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WRITER], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdin.write(json.dumps(given))
        writer.stdin.close()
        assert writer.stdout.readline() == "ready\n"
        ours = [store.save(moved(network(), n), base=base, strategy="delta") for n in range(8)]
        theirs = json.loads(writer.stdout.read())
    assert ours[4:] == theirs[:4]
    assert s3.store(url).list() == sorted({base, *ours, *theirs})
    store.delete(base, rebase=True)
    assert store.list() == sorted({*ours, *theirs})
    assert store.verify() == []
    for n, model in enumerate([*ours, *theirs[4:]]):
        assert_exact(store.load(model), moved(network(), n))


def objects(s3: S3) -> bytes:
    """All names and contents of the bucket."""
    files = s3.files()
    return b"".join(name.encode() + files.cat_file(name) for name in files.find("models"))


USES: list[Callable[[ModelStore], Any]] = [
    lambda store: store.list(),
    lambda store: store.save(network()),
    lambda store: store.load("0" * 64),
    lambda store: store.delete("0" * 64),
    lambda store: store.gc(),
]


@pytest.mark.parametrize("wrong", ["secret", "key", "bucket", "endpoint"])
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_an_error_says_where_and_shows_no_key(s3, url, caplog, wrong, nested):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore").setLevel(logging.INFO)
    theirs = s3.but(key="AKIASECRETKEY", secret="SECRETSECRET")
    theirs = {"secret": s3.but(secret=theirs.secret), "key": theirs, "bucket": s3, "endpoint": theirs}[wrong]
    options = theirs.options | {"config_kwargs": {"retries": {"max_attempts": 0}}}
    if wrong == "endpoint":
        options["endpoint_url"] = "http://127.0.0.1:1"
    if nested:
        given = {"aws_access_key_id": options.pop("key"), "aws_secret_access_key": options.pop("secret")}
        options["client_kwargs"] = given
    place = url.replace("s3://models", "s3://nobodys") if wrong == "bucket" else url
    store = ModelStore(place, storage_options=options)
    for use in USES:
        with pytest.raises(ModynError) as caught:
            use(store)
        assert isinstance(caught.value, StorageError)
        assert place in str(caught.value)
        shown = "".join(traceback.format_exception(caught.value)) + repr(store) + str(store.root)
        assert theirs.secret not in shown + caplog.text
        assert theirs.key not in shown
    assert wrong != "bucket" or "does not exist" in str(caught.value)


@pytest.mark.soak("laws-models")
def test_no_key_is_stored_shown_or_logged(s3, url, caplog):
    caplog.set_level(logging.DEBUG)
    store = s3.store(url)
    base = store.save(network(), strategy=Snapshot(compress=True), extra={"note": "kept"})
    child = store.save(moved(network(), 1), base=base, strategy="delta", model="torch.nn:Identity")
    shown = f"{store.info(child)}{store.environment(child)}{store.tree()}{store!r}{vars(store)}"
    store.delete(base, rebase=True)
    store.gc(older_than=0)
    for hidden in (s3.key, s3.secret):
        assert hidden not in shown
        assert hidden.encode() not in objects(s3)
    assert s3.secret not in caplog.text


def test_a_bucket_that_refuses_to_be_written_is_an_error_of_ours(s3, url):
    store = s3.store(url)
    model = store.save(network())
    store.repository.folder.filesystem.put_file = lambda *args, **kwargs: (_ for _ in ()).throw(PermissionError(13, "read only"))
    with pytest.raises(WriteFailed, match=f"{url}/.*: cannot be written: PermissionError: read only"):
        store.save(network(1), base=model)
    assert s3.store(url).list() == [model]
