"""Figures of provenance and of the adaptive choice."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.figures.storing import Folder, Setting, large_state, one, step
from benchmarks.model_flows import SmallNet, State, resnet18
from benchmarks.report import Figure
from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, ModelStore, Prices, Provenance, Snapshot
from modyn_dagster.model_store.probe import probe
from modyn_dagster.model_store.strategies import Strategy

TRACE: Final = Path(__file__).resolve().parents[1] / "model_store_trace.json"
_HERE: Final = "benchmarks.figures.choosing"


def again(base: State | None, *, data: Any, seed: int, steps: int = 2) -> State:  # noqa: ARG001 - as a provenance calls it
    """A short training that a provenance names."""
    module = SmallNet()
    if base is not None:
        module.load_state_dict(base)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.randn(16, 3, 32, 32)).square().mean().backward()
        optimizer.step()
    return dict(module.state_dict())


def provenance(setting: Setting) -> Iterator[Figure]:  # noqa: ARG001 - one of the groups
    """G8."""
    with Folder() as store:
        store.allow = (_HERE,)
        recipe = Provenance(train=f"{_HERE}:again", seed=1)
        state = recipe.run(None, allow=[_HERE])
        model = store.save(state, strategy="provenance", provenance=recipe)
        found = store.load(model, retrain=True)
        equal = all(
            torch.equal(found[name].view(torch.uint8), state[name].view(torch.uint8)) for name in state if state[name].dim()
        )
        size = store.size(model)
        many = {f"layer{n}.weight": torch.full((3,), float(n)) for n in range(932)}
        size_many = store.size(store.save(many, strategy="provenance", provenance=recipe))
    yield Figure("G8.bytes", "a provenance record of a small net", one(size), "bytes", 50_000, True)
    yield Figure("G8.bytes.932", "the same with the 932 tensors of ResNet-152", one(size_many), "bytes", 50_000, True)
    yield Figure("G8.equal", "trained again bit for bit", one(float(equal)), "of 1", 1)
    inputs = torch.randn(4, 3, 32, 32)
    alarms = sum(not probe(build, (inputs,), lambda x: x.square().mean()).is_safe for build in (SmallNet, resnet18))
    yield Figure("G8.alarms", "false alarms of the probe, ResNet-18 and a small net", one(alarms), "models", 0, True)


def adaptive(setting: Setting) -> Iterator[Figure]:
    """G9: the trace under every strategy, and under adaptive."""
    trace = json.loads(TRACE.read_text())
    prices = Prices(**trace["prices"])
    saves = trace["saves"][:: setting.smaller]
    strategies: dict[str, Strategy] = {
        "snapshot": Snapshot(compress=True),
        "plain": Snapshot(compress=False),
        "changed_layers": ChangedLayers(),
        "delta": Delta(full_model_interval=None),
        "adaptive": Adaptive(prices, delta=Delta(full_model_interval=None)),
    }
    costs: dict[str, list[float]] = {name: [] for name in strategies}
    for number, save in enumerate(saves):
        base = large_state(save["parameters"] // setting.smaller, seed=number)
        state = updated(base, save["update"], save["relative"], number)
        for name, strategy in strategies.items():
            costs[name].append(cost(base, state, strategy, prices))
    best = sum(min(costs[name][n] for name in strategies if name != "adaptive") for n in range(len(saves)))
    single = min(sum(costs[name]) for name in strategies if name != "adaptive")
    ours = sum(costs["adaptive"])
    note = f"{len(saves)} saves, prices {trace['prices']}, without provenance"
    yield Figure("G9.hindsight", "cost of adaptive, of the best per model", one(ours / best), "x", 1.05, True, note)
    yield Figure("G9.single", "cost of adaptive, of the best single strategy", one(ours / single), "x", 0.9, True, note)


def cost(base: State, state: State, strategy: Strategy, prices: Prices) -> float:
    """Of one save and its recoveries, in a store that holds the base; the better of two, for a busy machine."""
    with Folder() as store:
        found = store.save(base, strategy=Snapshot(compress=True))
        return min(_cost(store, found, state, strategy, prices) for _ in range(2))


def _cost(store: ModelStore, base: str, state: State, strategy: Strategy, prices: Prices) -> float:
    start = time.perf_counter()
    model = store.save(state, base=base, strategy=strategy)
    saving = time.perf_counter() - start
    start = time.perf_counter()
    store.load(model)
    recovering = time.perf_counter() - start
    n_bytes = store.size(model)
    store.delete(model)
    return prices.cost(n_bytes, saving, recovering)


def updated(base: State, update: str, relative: float, seed: int) -> State:
    """All layers moved, the last alone, or all of them new."""
    moved = step(base, seed, relative)
    if update == "full":
        return moved
    if update == "partial":
        last = list(base)[-1]
        return base | {last: moved[last]}
    return large_state(sum(t.numel() for t in base.values()), seed=seed + 500)
