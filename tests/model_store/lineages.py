"""Models that derive from each other: real floats that moved a little, layers that did not move, and anything else."""

import uuid

import torch
from hypothesis import strategies as st
from torch import Tensor

from modyn_dagster.model_store import ChangedLayers, Delta, ModelStore, Snapshot
from modyn_dagster.model_store.strategies.plan import MIN_ENCODED_BYTES
from modyn_dagster.model_store.strategies.settings import Strategy
from tests.model_store.states import copied, tensors

STRATEGIES: list[str | Strategy] = [
    Snapshot(compress=False),
    Snapshot(compress=True),
    ChangedLayers(),
    Delta(),
    Delta(operator="xor"),
    Delta(max_depth=3, full_model_interval=None),
    "adaptive",
]


def network(seed: int = 0, width: int = 160) -> dict[str, Tensor]:
    """Three layers with biases and a counter; two are large enough to be shared between models."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for layer in range(3):
        state[f"layers.{layer}.weight"] = torch.randn(width, width, generator=generator) * 0.05
        state[f"layers.{layer}.bias"] = torch.randn(width, generator=generator)
    return state | {"steps": torch.tensor(seed)}


def moved(state: dict[str, Tensor], seed: int, relative: float = 1e-3, only: str = "") -> dict[str, Tensor]:
    """The same after a step of training: floats whose name contains ``only`` move by a part of themselves."""
    generator = torch.Generator().manual_seed(seed)

    def step(tensor: Tensor) -> Tensor:
        return tensor * (1 + relative * torch.randn(tensor.shape, generator=generator).to(tensor.dtype))

    return {name: step(t) if t.is_floating_point() and only in name else t.clone() for name, t in state.items()}


@st.composite
def lineages(draw: st.DrawFn) -> list[tuple[dict[str, Tensor], str | Strategy]]:
    """States that each keep, move, replace, add or drop tensors of the one before; each with a strategy."""
    state = draw(st.dictionaries(st.sampled_from("abcde"), _of_any_size(), min_size=1, max_size=5))
    found = [(state, draw(st.sampled_from(STRATEGIES)))]
    for _ in range(draw(st.integers(1, 4))):
        state = dict(state)
        for name in draw(st.sets(st.sampled_from("abcdef"), max_size=4)):
            if draw(st.booleans()) and name in state and len(state) > 1:
                del state[name]
            elif name in state and draw(st.booleans()):
                state[name] = flipped(state[name], draw(st.integers(0, 7)))
            else:
                state[name] = draw(_of_any_size())
        found.append((state, draw(st.sampled_from(STRATEGIES))))
    return found


def _of_any_size() -> st.SearchStrategy[Tensor]:
    """Some so large that they are encoded."""
    return st.one_of(tensors(), tensors().map(_repeated))


def _repeated(tensor: Tensor) -> Tensor:
    words = copied(tensor).reshape(-1).view(torch.uint8)
    return words.repeat(1 + MIN_ENCODED_BYTES // words.nbytes).view(tensor.dtype) if tensor.numel() else tensor


def flipped(tensor: Tensor, bit: int) -> Tensor:
    """One bit of every element's first byte the other way."""
    plain = copied(tensor)
    if plain.dtype == torch.bool:
        return ~plain
    words = plain.reshape(-1).view(torch.uint8)
    words[:: plain.dtype.itemsize] ^= 1 << bit
    return plain


#: Two tensors of which one stays.
SMALL = [{"a": torch.arange(4.0), "b": torch.full((3,), float(n))} for n in range(4)]


def three_savers(store: ModelStore) -> list[tuple[dict[str, torch.Tensor], str]]:
    """Two who save one model, as differences to two bases; and one who reserve on tensors that only one of their files holds."""
    one = store.save({"a": SMALL[0]["a"], "b": torch.zeros(3)}, strategy=Snapshot(compress=False))
    other = store.save({"a": torch.ones(4), "b": torch.ones(3)}, strategy=Snapshot(compress=False))
    model = {"a": SMALL[0]["a"], "b": torch.ones(3)}
    identity = ModelStore(f"memory://models/{uuid.uuid4().hex}").save(model)
    return [(model, one), (model, other), ({"a": SMALL[0]["a"], "b": torch.full((3,), 2.0)}, identity)]
