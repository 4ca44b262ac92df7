"""Each kind of model's file in each state of damage: loading it is an error that names the file, and saving puts it right.

What only one kind has, such as records that lie, is in ``test_damage.py``, ``test_pack_damage.py`` and ``test_hostile.py``.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store import ModelStore, Snapshot
from tests.model_store.lineages import moved, network
from tests.model_store.states import assert_exact, flipped_bit
from tests.model_store.test_damage import ID, STATE, file_of
from tests.model_store.test_damage import planted as plant_plain
from tests.model_store.test_pack_damage import SMALL, pack_of
from tests.model_store.test_pack_damage import planted as plant_packed
from tests.variants import represented

State = Mapping[str, Tensor]
PACKED = Snapshot(compress=True)


@dataclass(frozen=True)
class Kind:
    """A kind of file: what is saved, each state but the first as a delta; how any content is framed and put in a store."""

    states: list[State]
    strategy: str | Snapshot
    # A model, and another that is put in its place.
    two: tuple[State, State]
    plant: Callable[[ModelStore, bytes], object]
    frame: Callable[[bytes], bytes]


@dataclass(frozen=True)
class Damage:
    """Change of a content, given a place in it and a bit; and True if the model is saved again."""

    do: Callable[[bytes, int, int], bytes]
    save_again: bool


KINDS = {
    "a plain model": Kind([STATE], "adaptive", (STATE, {"a.weight": torch.arange(8.0)}), plant_plain, file_of),
    "a packed base or its delta": Kind([SMALL, moved(SMALL, 1)], PACKED, (network(0), network(1)), plant_packed, pack_of),
}
DAMAGE = {
    "with a flipped bit": Damage(lambda content, at, bit: flipped_bit(content, 8 * at + bit), save_again=True),
    "that is cut short or longer": Damage(lambda content, at, bit: content[:at] if bit % 2 else content + content[at:], False),
}
MATRIX = {f"{of} {done}": (kind, damage) for of, kind in KINDS.items() for done, damage in DAMAGE.items()}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


@represented(
    "case", MATRIX, "laws-models", "a plain model with a flipped bit", "a packed base or its delta that is cut short or longer"
)
@settings(max_examples=max(150, settings().max_examples))
@given(st.data())
def test_damage_anywhere_is_found(case: tuple[Kind, Damage], data: st.DataObject) -> None:
    kind, damage = case
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        base = store.save(kind.states[0], strategy=kind.strategy)
        models = {base: kind.states[0]} | {store.save(state, base=base, strategy="delta"): state for state in kind.states[1:]}
        model = data.draw(st.sampled_from(list(models)))
        path = store.info(model).path
        content = path.read_bytes()
        at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
        path.write_bytes(damage.do(content, at, bit))
        with pytest.raises(CorruptFile) as caught:
            store.load(model)
        assert caught.value.path == str(path)
        if damage.save_again:
            found = store.verify()
            assert {type(error) for error in found} == {CorruptFile}
            assert model in {Path(error.path).stem for error in found}
            assert len(found) <= len(models)
            # Saving the damaged model again puts it, and its children, right.
            assert store.save(models[model], base=None if model == base else base) == model
            for each, state in models.items():
                assert_exact(store.load(each), state)
            assert store.verify() == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_an_error_of_ours(kind: Kind, content: bytes, framed: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        kind.plant(store, kind.frame(content) if framed else content)
        with pytest.raises(CorruptFile):
            store.load(ID)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_model_under_the_name_of_another_is_refused(store: ModelStore, kind: Kind) -> None:
    one, other = (store.save(state, strategy=kind.strategy) for state in kind.two)
    store.info(one).path.write_bytes(store.info(other).path.read_bytes())
    with pytest.raises(CorruptFile, match=f"expected the record of model {one}, found that of {other}"):
        store.load(one)
