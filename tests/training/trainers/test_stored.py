"""Model files: the same bytes for the same model, nothing from elsewhere, and no pickle."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import zipfile
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.trainers.stored.object_graph import decode, encode
from modyn_dagster.training.trainers.stored.pickles import pickle_in, refuse_pickle
from modyn_dagster.training.trainers.stored.skops_file import dump_estimator, load_estimator

X = np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


class Estimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # the library has no types
    """An estimator of a user's own, with a set of texts."""

    def __init__(self, names: Any = None, again: Any = None) -> None:
        self.names, self.again = names, again


def unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezipped(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return written.getvalue()


def test_an_archive_of_an_estimator_depends_on_it_alone() -> None:
    one, other = (DecisionTreeClassifier(random_state=0).fit(X, Y) for _ in range(2))
    content = dump_estimator(one, ["sklearn"], source="p")
    assert content == dump_estimator(other, ["sklearn"], source="p")
    assert content == dump_estimator(load_estimator(content, ["sklearn"], source="p"), ["sklearn"], source="p")
    assert [*unzipped(content)] == [*(f"{i}.npy" for i in range(1, 6)), "schema.json"]


def test_shared_arrays_stay_shared_and_sets_have_an_order() -> None:
    array = np.arange(4.0)
    names = {f"name {i}" for i in range(20)}
    content = dump_estimator(Estimator(names, [array, array, array.copy()]), ["tests"], source="p")
    assert [*unzipped(content)] == ["1.npy", "2.npy", "schema.json"]
    loaded = load_estimator(content, ["tests"], source="p")
    assert loaded.names == names
    assert loaded.again[0] is loaded.again[1]
    in_other_order = {f"name {i}" for i in reversed(range(20))}
    assert dump_estimator(Estimator(in_other_order, loaded.again), ["tests"], source="p") == content


def test_memory_between_the_fields_of_rows_is_not_stored() -> None:
    rows = np.frombuffer(np.full(32, 7, np.uint8), np.dtype([("a", np.uint8), ("b", np.float64)], align=True)).copy()
    clean = np.zeros_like(rows)
    for name in ("a", "b"):
        clean[name] = rows[name]
    assert rows.tobytes() != clean.tobytes()
    assert dump_estimator(Estimator(rows), ["tests"], source="p") == dump_estimator(Estimator(clean), ["tests"], source="p")


def test_a_class_of_another_package_is_refused_in_an_estimator_and_in_a_file() -> None:
    with pytest.raises(ConfigError, match=r"only classes of sklearn may be in the model.*test_stored.Estimator"):
        dump_estimator(Estimator(), ["sklearn"], source="p")
    content = dump_estimator(Estimator(), ["tests"], source="p")
    with pytest.raises(ConfigError, match=r"only classes of sklearn may be in the model"):
        load_estimator(content, ["sklearn"], source="p")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("sklearn.utils", "murmurhash3_32"),
        ("sklearn.utils._testing", "TemporaryDirectory"),
    ],
)
def test_an_archive_cannot_name_a_function_nor_what_a_package_has_only_imported(module: str, name: str) -> None:
    members = unzipped(dump_estimator(DecisionTreeClassifier(), ["sklearn"], source="p"))
    schema = json.loads(members["schema.json"])
    schema["content"]["content"]["criterion"] = {"__class__": name, "__module__": module, "__loader__": "TypeNode"}
    members["schema.json"] = json.dumps(schema).encode()
    with pytest.raises(ConfigError, match=f"may be in the model.*{module}.{name}"):
        load_estimator(rezipped(members), ["sklearn"], source="p")


def test_a_function_within_an_estimator_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"functions never.*gzip.compress"):
        dump_estimator(FunctionTransformer(gzip.compress), ["sklearn", "gzip"], source="p")


def test_an_array_of_pickled_objects_in_an_archive_is_refused() -> None:
    members = unzipped(dump_estimator(Estimator(np.arange(3)), ["tests"], source="p"))
    written = io.BytesIO()
    np.save(written, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"cannot be loaded: ValueError: .*allow_pickle"):
        load_estimator(rezipped(members | {"1.npy": written.getvalue()}), ["tests"], source="p")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"tree\nversion=v4\n"])
def test_bytes_that_are_no_archive_are_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="is no archive of skops"):
        load_estimator(content, ["sklearn"], source="p")


@given(st.integers(0, 5), st.recursive(st.none() | st.text() | st.floats(), lambda inner: st.lists(inner, max_size=3)))
def test_a_pickle_is_found_whatever_its_protocol_and_wrapping(protocol: int, value: Any) -> None:
    content = pickle.dumps(value, protocol)
    assert pickle_in(content) is not None
    for wrapped in (gzip.compress, bz2.compress, lzma.compress, zlib.compress):
        assert pickle_in(wrapped(content)) is not None
    assert pickle_in(rezipped({"notes.txt": b"text", "model/data.pkl": content})) is not None


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.dictionaries(st.text(), st.floats()).map(lambda value: json.dumps(value).encode())
)
def test_other_bytes_are_no_pickle(content: bytes) -> None:
    # A file of text, of trees or of JSON begins with no operation of a pickle.
    assert pickle_in(b"{" + content) is None


def test_the_refusal_of_a_pickle_names_model_and_place() -> None:
    with pytest.raises(ConfigError, match=r"p: training.model: its model file is a pickle \(member a, protocol 4\).*'trainer'"):
        refuse_pickle(rezipped({"a": pickle.dumps(1, 4)}), source="p", name="trainer")


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
HASHABLE = st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
GRAPHS = st.recursive(
    PLAIN | st.sampled_from([int, dict, defaultdict]) | st.frozensets(HASHABLE, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=3)
        | st.lists(inner, max_size=3).map(deque)
        | st.dictionaries(HASHABLE, inner, max_size=3).map(OrderedDict)
        | st.lists(st.text(), max_size=3).map(Counter)
        | st.lists(st.floats(width=32), max_size=3).map(lambda values: np.array(values, np.float32))
    ),
    max_leaves=12,
)


@given(GRAPHS)
def test_a_graph_is_read_as_it_was_written(value: Any) -> None:
    content = encode([value], "river", source="p")
    again = decode(content, "river", (), source="p")
    assert encode(again, "river", source="p") == content
    # NumPy's arrays compare by value, NaN apart; their text does not hide it.
    assert repr(again) == repr([value]) or "{" in repr(value)


def test_objects_that_hold_each_other_do_so_again() -> None:
    first: list[Any] = [1]
    second = {"first": first, "factory": partial(defaultdict, list)}
    first.append(second)
    loaded = decode(encode(first, "river", source="p"), "river", (), source="p")
    assert loaded[1]["first"] is loaded
    assert loaded[1]["factory"]()["absent"] == []


def test_a_generator_goes_on_where_it_was_and_one_that_nobody_seeded_is_the_same_everywhere() -> None:
    from river.proba import Gaussian

    seeded = Random(3)  # noqa: S311 - as models have them
    seeded.random()
    loaded = decode(encode(seeded, "river", source="p"), "river", (), source="p")
    assert loaded.random() == seeded.random()
    assert encode(Gaussian(), "river", source="p") == encode(Gaussian(), "river", source="p")
    assert encode(Gaussian(seed=1), "river", source="p") != encode(Gaussian(seed=2), "river", source="p")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda: 0, "test_stored"),
        (Estimator(), "test_stored:Estimator"),
        (print, "builtins:print"),
        (partial(pickle.loads), "_pickle:loads"),
        ({object()}, "a set of objects has no order"),
    ],
)
def test_what_a_graph_cannot_hold_is_named(value: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        encode([value], "river", source="p")


@pytest.mark.parametrize(
    "node",
    [
        {"call": "os:system", "arguments": ["true"]},
        {"call": "builtins:eval", "arguments": ["1"]},
        {"call": "river.utils.math:minkowski_distance", "arguments": [{"object": 1}, {"object": 1}, 2]},
        {"call": "river.datasets:Phishing"},
        {"call": "river.datasets.phishing:Phishing"},
        {"new": "river.compose.pipeline:base.Estimator"},
        {"call": "copy:deepcopy", "arguments": [1]},
        {"list": [{"name": "river.utils.pretty:os"}]},
        {"list": [{"name": "river:os.system"}]},
    ],
)
def test_a_file_makes_river_call_nothing_but_classes_of_models(node: dict[str, Any]) -> None:
    content = json.dumps({"package": "river", "nodes": [node, {"dict": []}]}).encode()
    with pytest.raises(ConfigError, match="only classes and functions of river can"):
        decode(content, "river", ("river.datasets",), source="p")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"nodes": [{"call": "random:Random", "arguments": [{"object": 9}]}]}'])
def test_bytes_that_are_no_graph_are_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="is no model of river, or a damaged one"):
        decode(content, "river", (), source="p")
