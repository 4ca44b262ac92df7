"""Choice of a tensor's codec, and the estimates of the adaptive strategy from small samples."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, ModelStore, Prices, Provenance, Snapshot
from modyn_dagster.model_store.format.codec import CHUNK, Codec, decode_chunk
from modyn_dagster.model_store.format.model_file import read_stored
from modyn_dagster.model_store.format.record import Leaf
from modyn_dagster.model_store.strategies.encoding import choose_codec
from modyn_dagster.model_store.strategies.plan import MIN_ENCODED_BYTES, PlannedTensor
from modyn_dagster.model_store.strategies.writer import ModelWriter

RNG = np.random.default_rng(0)
WEIGHTS = (RNG.standard_normal(60_000) * 0.03).astype(np.float32)
FRESH = (RNG.standard_normal(60_000) * 0.03).astype(np.float32)


def part(content: np.ndarray, codec: Codec = Codec.SUBTRACT) -> PlannedTensor:
    return PlannedTensor("w", Leaf(torch.float32, (content.nbytes // 4,), ""), codec=codec)


def view(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)


@pytest.mark.parametrize(
    ("words", "base", "expected"),
    [
        pytest.param(WEIGHTS * np.float32(1.001), WEIGHTS, Codec.SUBTRACT, id="moved a little"),
        pytest.param(FRESH, WEIGHTS, Codec.PLANES, id="the base is of no help"),
        pytest.param(FRESH, None, Codec.PLANES, id="without a base"),
        pytest.param(RNG.integers(0, 2**32, 60_000, np.uint32), WEIGHTS, Codec.RAW, id="nothing helps"),
        pytest.param(np.zeros(60_000, np.float32), WEIGHTS, Codec.PLANES, id="zeros, and the base is not"),
        pytest.param(np.arange(8, dtype=np.float32), np.ones(8, np.float32), Codec.RAW, id="too few"),
    ],
)
def test_a_tensor_is_stored_by_what_makes_it_small(words, base, expected):
    codec, planes = choose_codec(part(words), view(words).data, None if base is None else view(base).data)
    assert codec == expected
    assert sum(map(len, planes)) <= words.nbytes


@given(st.binary(min_size=4, max_size=600), st.binary(min_size=4, max_size=600), st.sampled_from([Codec.XOR, Codec.SUBTRACT]))
def test_what_a_tensor_begins_with_comes_back(a, b, operator):
    n = min(len(a), len(b)) // 4 * 4
    times = -(-MIN_ENCODED_BYTES // n)
    a, b, n = a[:n] * times, b[:n] * times, n * times
    base = np.frombuffer(b, np.uint8)
    codec, planes = choose_codec(part(base, operator), memoryview(a), base.data)
    assert sum(map(len, planes)) <= n
    if codec == Codec.RAW:
        assert b"".join(planes) == a[:n]
        return
    out = np.empty(n, np.uint8)
    decode_chunk(codec, torch.float32, [memoryview(each) for each in planes], base if codec.needs_base else None, out.data)
    assert out.tobytes() == a[:n]


def test_the_whole_first_chunk_is_encoded_though_a_piece_of_it_decides():
    words = np.concatenate([FRESH] * 5)[: CHUNK // 4]
    codec, planes = choose_codec(part(words), view(words).data, None)
    out = np.empty(words.nbytes, np.uint8)
    decode_chunk(codec, torch.float32, [memoryview(each) for each in planes], None, out.data)
    assert out.tobytes() == words.tobytes()


def layers() -> dict[str, torch.Tensor]:
    """Two large layers of weights, and hundreds of small ones that hold next to nothing."""
    generator = torch.Generator().manual_seed(0)
    large = {f"large{n}": torch.randn(400_000, generator=generator) for n in range(2)}
    return {f"small{n:03}": torch.zeros(1000) + n for n in range(300)} | large


def moved(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: t * (1 + 1e-3 * torch.randn(t.shape, generator=generator)) for name, t in state.items()}


def test_adaptive_expects_the_bytes_that_come_however_many_small_layers_there_are(tmp_path):
    store = ModelStore(tmp_path, threads=1)
    state = moved(layers())
    base = store.save(layers(), strategy=Snapshot(compress=True))
    model = store.save(state, base=base, strategy=Adaptive(Prices(save=0, recover=0)))
    expected = re.findall(r"(delta|snapshot) ([0-9.]+) MB", store.info(model).reason)
    store.delete(model)
    for kind, strategy in (("delta", Delta()), ("snapshot", Snapshot(compress=True))):
        model = store.save(state, base=base, strategy=strategy)
        size = store.size(model) / 1e6
        store.delete(model)
        assert min(float(mb) for name, mb in expected if name == kind) == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize(
    "strategy", [Snapshot(compress=False), Snapshot(compress=True), ChangedLayers(), Delta(), "provenance"], ids=str
)
def test_what_saving_says_is_there_is_what_is_read(tmp_path, strategy, monkeypatch):
    said = []
    write = ModelWriter.write

    def listening(*args):
        said.append(write(*args))
        return said[-1]

    store = ModelStore(tmp_path)
    base = store.save(layers(), strategy=Snapshot(compress=True))
    monkeypatch.setattr(ModelWriter, "write", listening)
    recipe = Provenance(train="benchmarks.none:train")
    store.save(moved(layers()) | {"small000": torch.zeros(1000)}, base=base, strategy=strategy, provenance=recipe)
    with Path(said[0].path).open("rb") as file:
        assert said == [read_stored(file, said[0].path, said[0].id)]
    assert said[0].metadata.strategy == getattr(strategy, "kind", strategy)
