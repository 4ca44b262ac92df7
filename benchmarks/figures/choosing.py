"""The adaptive choice over a committed trace: cost relative to the best choice in hindsight and the best single strategy."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.figures.retraining import again
from benchmarks.model_flows import State
from benchmarks.model_setting import Setting, folder, one
from benchmarks.report import Figure
from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, Prices, Provenance, Snapshot
from modyn_dagster.model_store.strategies.settings import Retrain, Strategy

TRACE: Final = Path(__file__).resolve().parents[1] / "model_store_trace.json"
_HERE: Final = "benchmarks.figures.choosing"
_PRICED: Final[Mapping[str, str]] = {
    "store": "per GB",
    "save": "per second",
    "recover": "per second",
    "recoveries": "of each model",
}
#: Of each save, the cheapest: a busy machine makes some of them dear.
_REPEATS: Final = 3


def trained(base: State, *, data: Mapping[str, Any], seed: int, update: str, relative: float) -> State:
    """The training of one save: as much of it as the data are, of a small net, and an update of the size that was asked for."""
    again(None, data={"images": seed}, seed=seed, steps=data["batches"])
    if update == "full":
        return moved(base, seed, relative)
    if update == "partial":
        last = list(base)[-1]
        return base | {last: moved({last: base[last]}, seed, relative)[last]}
    return fresh(sum(t.numel() for t in base.values()), seed + 500)


@dataclass
class Seconds:
    """How long something took, by the clock and of the processor."""

    wall: float = 0.0
    processor: float = 0.0


@dataclass(frozen=True)
class Cost:
    """By the formula of ``Prices``, with seconds by the clock, and with seconds of the processor."""

    wall: float
    processor: float

    @classmethod
    def of(cls, n_bytes: int, saving: Seconds, recovering: Seconds, prices: Prices) -> "Cost":
        wall = prices.cost(n_bytes, saving.wall, recovering.wall)
        return cls(wall, prices.cost(n_bytes, saving.processor, recovering.processor))


@dataclass(frozen=True)
class Turn:
    """One save of the trace: what it is saved against, what is saved, and how that was trained."""

    base: State
    state: State
    provenance: Provenance


def adaptive(setting: Setting) -> Iterator[Figure]:
    """G9."""
    trace = json.loads(TRACE.read_text())
    prices = Prices(**trace["prices"])
    delta = Delta(full_model_interval=None)
    singles: dict[str, Strategy] = {
        "snapshot": Snapshot(compress=True),
        "plain": Snapshot(compress=False),
        "changed_layers": ChangedLayers(),
        "delta": delta,
        "provenance": Retrain(),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ("adaptive", *singles)}
    chosen: Counter[str] = Counter()
    for number, save in enumerate(trace["saves"][: setting.saves]):
        turn = turn_of(save, number, setting.smaller)
        found, kind = costs_of(turn, singles | {"adaptive": Adaptive(prices, delta=delta)}, prices)
        chosen[kind] += 1
        for name, cost in found.items():
            costs[name].append(cost)
        best = min(singles, key=lambda name: found[name].processor)
        regret = found["adaptive"].processor / found[best].processor - 1
        print(f"  save {number + 1}: {save}, chosen {kind}, best {best}, {100 * regret:+.1f} %", flush=True)
    for name, price in trace["prices"].items():
        yield Figure(f"G9.price.{name}", "price of G9", one(price), _PRICED[name])
    note = f"{len(costs['adaptive'])} saves, prices {trace['prices']}, {dict(chosen)}"
    for clock, suffix in (("wall", ""), ("processor", ".cpu")):
        by = {name: [getattr(cost, clock) for cost in each] for name, each in costs.items()}
        ours, single = sum(by["adaptive"]), min(singles, key=lambda name: sum(by[name]))
        best_each = sum(min(each) for each in zip(*(by[name] for name in singles), strict=True))
        goals = (None, None) if suffix else (1.05, 0.9)
        what = "cost of adaptive, of the best per model in hindsight"
        yield Figure(f"G9.hindsight{suffix}", what, one(ours / best_each), "x", goals[0], True, note)
        what = f"cost of adaptive, of the best single strategy, {single}"
        yield Figure(f"G9.single{suffix}", what, one(ours / sum(by[single])), "x", goals[1], True, note)


@contextmanager
def clocked() -> Iterator[Seconds]:
    """Times what is done inside."""
    found, wall, processor = Seconds(), time.perf_counter(), time.process_time()
    yield found
    found.wall, found.processor = time.perf_counter() - wall, time.process_time() - processor


def turn_of(save: Mapping[str, Any], number: int, smaller: int = 1) -> Turn:
    """A save of the trace, trained once, as it is before a model is saved."""
    base = fresh(save["parameters"] // smaller, number)
    args = {"update": save["update"], "relative": save["relative"]}
    recipe = Provenance(f"{_HERE}:trained", args, {"batches": save["batches"]}, seed=number, probed=True)
    with clocked() as training:
        state = recipe.run(base, allow=[_HERE])
    return Turn(base, state, replace(recipe, seconds=training.processor))


def costs_of(turn: Turn, strategies: Mapping[str, Strategy], prices: Prices) -> tuple[Mapping[str, Cost], str]:
    """Cost of the save and its recoveries by each strategy, in a store that holds the base; and what ``adaptive`` chose."""
    found: dict[str, list[Cost]] = {name: [] for name in strategies}
    chosen: Counter[str] = Counter()
    with folder() as store:
        store.allow = (_HERE,)
        base = store.save(turn.base, strategy=Snapshot(compress=True))
        retraining: Seconds | None = None
        for _ in range(_REPEATS):
            for name, strategy in strategies.items():
                with clocked() as saving:
                    model = store.save(turn.state, base=base, strategy=strategy, provenance=turn.provenance)
                kind, n_bytes = store.info(model).strategy, store.size(model)
                if kind != "provenance" or retraining is None:
                    with clocked() as recovering:
                        store.load(model, retrain=True)
                # Training again takes what it took.
                retraining = recovering if kind == "provenance" and retraining is None else retraining
                recovering = retraining if kind == "provenance" and retraining is not None else recovering
                store.delete(model)
                found[name].append(Cost.of(n_bytes, saving, recovering, prices))
                chosen[kind] += name == "adaptive"
    cheapest = {name: Cost(min(c.wall for c in each), min(c.processor for c in each)) for name, each in found.items()}
    return cheapest, chosen.most_common(1)[0][0] if chosen else ""


def fresh(n_parameters: int, seed: int) -> State:
    """Layers of a million parameters and less."""
    generator, left = torch.Generator().manual_seed(seed), n_parameters
    found: State = {}
    while left > 0:
        n = min(left, 1 << 20)
        found[f"layer{len(found)}"] = torch.randn(n, generator=generator) * 0.03
        left -= n
    return found


def moved(state: State, seed: int, relative: float) -> State:
    """Every weight moves by about ``relative`` of itself."""
    generator = torch.Generator().manual_seed(seed + 1)
    return {name: t * (1 + relative * torch.randn(t.shape, generator=generator)) for name, t in state.items()}
