"""MMlib's documents in JSON files, and what is measured beside MMlib, by stores that need none of it."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.contenders.json_documents import JsonDocuments
from benchmarks.contenders.mmlib_models import Published
from benchmarks.figures.model_beside import Chain, Limits, beside, figures_of
from benchmarks.model_flows import Recipe, SmallNet, flow
from benchmarks.model_keepers import Ours, differing, module_of
from benchmarks.model_setting import DELTA, Setting
from modyn_dagster.model_store import ChangedLayers, ModelStore, Snapshot
from modyn_dagster.model_store.strategies.settings import Strategy
from tests.examples import examples


def tiny() -> nn.Module:
    """Three channels, ten features, a thousand classes."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10), nn.Linear(10, 1000))


TINY = Recipe(tiny, batch=2, steps=1, pretraining=1)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(VALUES, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3), max_leaves=8)
DOCUMENTS = st.dictionaries(st.text().filter(lambda name: name != "id"), TREES, max_size=4)


@pytest.mark.long
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["model_info", "environment"]), DOCUMENTS, st.booleans(), DOCUMENTS), max_size=5))
def test_documents_come_back_as_they_were_saved_and_extended(saves):
    with tempfile.TemporaryDirectory() as path:
        documents, expected = JsonDocuments(Path(path)), dict[tuple[str, str], dict]()
        for kind, fields, has_id, more in saves:
            given_id = documents.generate_id()
            document = fields | ({"id": given_id} if has_id else {})
            name = documents.save_dict(document, kind)
            assert (name == given_id) == has_id
            documents.add_field(name, kind, more)
            expected[kind, name] = document | more
        again = JsonDocuments(Path(path))
        for (kind, name), document in expected.items():
            assert again.recover_dict(name, kind) == document
            assert again.dict_size(name, kind) == len(json.dumps(document))
            assert [again.id_exists(name, each) for each in ("model_info", "environment")].count(True) == 1
        for kind in ("model_info", "environment"):
            assert set(again.all_ids_for_type(kind)) == {name for each, name in expected if each == kind}


@pytest.mark.parametrize("ask", ["recover_dict", "dict_size"])
def test_a_document_that_is_not_there_is_named(tmp_path, ask):
    documents = JsonDocuments(tmp_path)
    name = documents.save_dict({}, "environment")
    assert not documents.id_exists(name, "model_info")
    with pytest.raises(KeyError, match=f"model_info: no document {name}"):
        getattr(documents, ask)(name, "model_info")
    with pytest.raises(KeyError, match="no document"):
        documents.add_field(name, "model_info", {"a": 1})


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("sign of zero", torch.tensor([-0.0, 1.0])),
        ("dtype", torch.tensor([0, 0x3F800000], dtype=torch.int32)),
        ("shape", torch.tensor([[0.0, 1.0]])),
        ("value", torch.tensor([0.0, 2.0])),
    ],
)
def test_what_came_back_different_is_named(name: str, other: Tensor):
    expected = {"a": torch.tensor([0.0, 1.0]), "b": torch.tensor(float("nan"))}
    assert differing({key: tensor.clone() for key, tensor in expected.items()}, expected) is None
    assert differing(expected | {"a": other}, expected) == "a"
    assert differing({"b": expected["b"], "a": expected["a"]}, expected) == "b"
    assert differing({"a": expected["a"]}, expected) == "the number of tensors"


def test_a_saved_model_is_taken_back_and_the_others_stay(tmp_path):
    before, after = (module_of(TINY, state) for state in flow(TINY, lr=0.1, updates=1))
    ours = Ours(ModelStore(tmp_path), DELTA, tiny)
    base = ours.save(before, None)
    contents = ours.contents()
    model = ours.save(after, base)
    assert (ours.contents(), ours.size(model) > 0) == (frozenset({base, model}), True)
    ours.keep(contents)
    assert ours.contents() == {base}
    assert differing(ours.recover(base).state_dict(), before.state_dict()) is None


@pytest.mark.soak("benchmarks")
@pytest.mark.long
def test_a_chain_has_figures_of_bytes_saving_and_every_recovery(tmp_path):
    strategies: dict[str, Strategy] = {"ba": Snapshot(compress=False), "pua": ChangedLayers(), "delta": DELTA}
    keepers = {name: Ours(ModelStore(tmp_path / name), strategy, tiny) for name, strategy in strategies.items()}
    chain = Chain("M", TINY, list(flow(TINY, lr=1e-3, updates=2)), keepers, Limits(1.5, 1.2, 1.1))
    found = {figure.id: figure for figure in figures_of(chain, Setting.quick())}
    names = {f"M.{what}.{name}" for what in ("bytes", "save") for name in strategies}
    positions = {f"M.recover.{name}.{n}" for name in strategies for n in range(3)}
    ratios = {f"M.{what}.delta.{of}" for what in ("save", "recover") for of in ("ba", "pua")}
    ratios |= {f"M.stairs.{name}" for name in strategies}
    assert found.keys() == {*names, *positions, *ratios, *(f"{name}.cpu" for name in ratios), "M.build", "M.bytes.delta.pua"}
    assert all(figure.spread is not None and figure.spread.min > 0 for figure in found.values())
    goals = {name: figure.goal for name, figure in found.items() if figure.goal is not None}
    assert goals == {"M.save.delta.ba": 1.5, "M.recover.delta.ba": 1.2, "M.stairs.delta": 1.1}


@pytest.mark.soak("benchmarks")
@pytest.mark.long
def test_a_model_that_comes_back_different_ends_the_measurement(tmp_path):
    class Forgetful(Ours):
        def recover(self, model: str) -> nn.Module:
            module = super().recover(model)
            with torch.no_grad():
                module.get_parameter("3.bias")[7].neg_()
            return module

    keepers = {"ba": Forgetful(ModelStore(tmp_path / "ba"), DELTA, tiny), "pua": Ours(ModelStore(tmp_path / "pua"), DELTA, tiny)}
    chain = Chain("M", TINY, list(flow(TINY, lr=0.1, updates=1)), keepers)
    with pytest.raises(RuntimeError, match=r"Forgetful, model \w+: 3\.bias came back different"):
        list(figures_of(chain, Setting.quick()))


def test_without_a_checkout_nothing_is_measured_and_the_figures_say_so():
    found = [figure for size in ("network", "large") for figure in beside(size, Setting())]
    assert [figure.id for figure in found] == [
        f"MMlib.{size}.{update}" for size in ("network", "large") for update in ("full", "partial")
    ]
    assert all(figure.spread is None and "--mmlib" in figure.note for figure in found)


def test_a_folder_without_mmlib_is_named(tmp_path):
    with pytest.raises(RuntimeError, match=r"checkout: MMlib cannot be imported, No module named 'mmlib'"):
        Published(tmp_path / "checkout", tmp_path / "store", "ba", SmallNet)
