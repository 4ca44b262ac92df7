"""Figures of the model store: bytes, times, recovery along a chain, verification, scale."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.measure import Machine, Run, Spread, interleave
from benchmarks.model_flows import (
    BATCH,
    CLASSES,
    SIDE,
    STEPS,
    SmallNet,
    State,
    baseline_load,
    baseline_save,
    flow,
    last_layer,
    n_bytes,
    resnet18,
)
from benchmarks.report import Figure
from modyn_dagster.model_store import Delta, ModelStore, Snapshot

DELTA = Delta(full_model_interval=None)


@dataclass
class Setting:
    """How much is measured."""

    rounds: int = 4
    network: Callable[[], torch.nn.Module] = resnet18
    large_parameters: int = 60_192_808
    chain: int = 20
    fleet: int = 20
    smaller: int = 1
    machine: Machine = field(default_factory=Machine)

    @classmethod
    def quick(cls) -> "Setting":
        return cls(rounds=1, network=SmallNet, large_parameters=4_000_000, chain=6, fleet=2, smaller=8)


class Folder:
    """A store in a folder that goes away."""

    def __enter__(self) -> ModelStore:
        self._path = Path(tempfile.mkdtemp(prefix="models-"))
        return ModelStore(self._path / "store")

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path)


def sizes(setting: Setting) -> Iterator[Figure]:
    """G2, G3 and G4."""
    network = setting.network.__name__
    conditions = (
        f"{network}, synthetic {SIDE} x {SIDE} images of {CLASSES} classes, SGD 0.9, batch {BATCH}, {STEPS} steps, depth 1"
    )
    for lr, goal in ((1e-3, 0.63), (1e-4, 0.53)):
        states = list(flow(setting.network, lr=lr, rounds=setting.rounds))
        with Folder() as store:
            shares = [store.size(model) / n_bytes(state) for model, state in zip(save_all(store, states), states, strict=True)]
        whole = Spread(statistics.fmean(shares), min(shares), max(shares))
        yield Figure(f"G2.{lr:g}", f"flow of {len(states)}, lr {lr:g}, of full bytes", whole, "x", goal, True, conditions)
    first = states[0]
    with Folder() as store:
        share = store.size(store.save(first, strategy=Snapshot(compress=True))) / n_bytes(first)
        cast = {name: t.bfloat16() if t.is_floating_point() else t for name, t in first.items()}
        share16 = store.size(store.save(cast, strategy=Snapshot(compress=True))) / n_bytes(cast)
    yield Figure("G4.fp32", "snapshot without a base, of raw fp32", one(share), "x", 0.845, True)
    yield Figure("G4.bf16", "the same cast to bf16, of raw bf16", one(share16), "x", 0.69, True)
    states = list(flow(setting.network, lr=1e-3, rounds=0, only_last=True))
    with Folder() as store:
        base, model = save_all(store, states)
        changed = sum(states[1][name].nbytes for name in store.diff(base, model))
        share = store.size(model) / changed
    yield Figure("G3", f"{last_layer(setting.network())} alone, of its plain bytes", one(share), "x", 0.85, True)


def times(setting: Setting) -> Iterator[Figure]:
    """G5 and G7: saving beside MMlib's baseline, and what verification costs."""
    networks = {"resnet152": large(setting.large_parameters), "network": pair(setting.network), "small": pair(SmallNet)}
    for name, (before, after) in networks.items():
        with Folder() as store:
            base = store.save(before, strategy=Snapshot(compress=True))
            path = store.root / "baseline.pt"
            store.threads = torch.get_num_threads()

            def delta(store: ModelStore = store, after: State = after, base: str = base) -> Run:
                start = time.perf_counter()
                model = store.save(after, base=base, strategy=DELTA)
                seconds = time.perf_counter() - start
                store.delete(model)
                return Run(1, seconds)

            found = interleave({"delta": delta, "baseline": saving_baseline(after, path)}, setting.machine)
            goal = 1.0 if name == "resnet152" else 1.5
            note = f"{n_bytes(after) / 1e6:.1f} MB, {store.threads} threads"
            yield Figure(
                f"G5.{name}",
                "seconds to save a delta, of the baseline's",
                found.ratio("baseline", "delta"),
                "x",
                goal,
                True,
                note,
            )
            for kind, model, limit in (
                ("delta", store.save(after, base=base, strategy=DELTA), 0.25),
                ("plain", plain(store, before), 0.5),
            ):
                yield Figure(
                    f"G7.{kind}.{name}", "verification, of the recovery", verification(store, model, setting), "x", limit, True
                )


def chain(setting: Setting) -> Iterator[Figure]:
    """G6: no staircase."""
    state, base, models = large_state(11_700_000, seed=0), None, []
    with Folder() as store:
        for n in range(setting.chain):
            base = store.save(state, base=base, strategy=DELTA)
            models.append(base)
            state = step(state, n)
        path = store.root / "baseline.pt"
        baseline_save(store.load(models[0]), path)
        contenders: dict[str, Callable[[], Run]] = {"baseline": lambda: Run(1, baseline_load(path))}
        contenders |= {f"{n}": loading(store, model) for n, model in enumerate(models)}
        found = interleave(contenders, setting.machine)
        ratios = [found.ratio("baseline", f"{n}") for n in range(len(models))]
        worst = max(ratios, key=lambda spread: spread.value)
        yield Figure("G6", f"slowest recovery in a chain of {len(models)}, of the baseline's", worst, "x", 1.2, True)
        yield Figure("G6.last", "last derived recovery, of the first's", found.ratio("1", f"{len(models) - 1}"), "x", 1.1, True)


def scale(setting: Setting) -> Iterator[Figure]:
    """G10: many nodes; 20 of them that save the same model."""
    short = list(flow(SmallNet, lr=1e-3, rounds=4))
    with Folder() as store:
        bytes_short, save_short, load_short = per_model(store, short)
    with Folder() as store:
        totals = [per_model(store, list(node)) for node in nodes(setting.fleet)]
        n_models = len(store.list())
        base = store.list()[0]
        for _ in range(20):
            store.save(store.load(base))
        same = len(store.list()) - n_models
    medians = [statistics.median(column) for column in zip(*totals, strict=True)]
    goals = (("bytes", bytes_short, 1.10), ("saving", save_short, 1.25), ("recovery", load_short, 1.25))
    for (what, reference, goal), value in zip(goals, medians, strict=True):
        yield Figure(f"G10.{what}", f"{what} per model of {n_models}, of a flow of 10", one(value / reference), "x", goal, True)
    yield Figure("G10.same", "models added by 20 nodes that save the same", one(same), "models", 0, True)


def nodes(n: int) -> Iterator[Iterator[State]]:
    """A flow of 20 models for each node, from the same first one."""
    for node in range(n):
        yield _node(node)


def _node(node: int) -> Iterator[State]:
    state = next(flow(SmallNet, lr=1e-3, rounds=0))
    yield state
    for n in range(20):
        state = step(state, 1000 * node + n, 1e-3)
        yield state


def per_model(store: ModelStore, states: Sequence[State]) -> tuple[float, float, float]:
    """Mean bytes, median seconds to save and to recover, of the derived models."""
    base, sizes, saving, recovering = None, [], [], []
    for state in states:
        start = time.perf_counter()
        base = store.save(state, base=base, strategy=DELTA)
        saving.append(time.perf_counter() - start)
        start = time.perf_counter()
        store.load(base)
        recovering.append(time.perf_counter() - start)
        sizes.append(store.size(base))
    return statistics.fmean(sizes[1:]), statistics.median(saving[1:]), statistics.median(recovering[1:])


def save_all(store: ModelStore, states: Sequence[State]) -> list[str]:
    """A lineage of deltas behind a compressed snapshot."""
    base, found = None, []
    for state in states:
        base = store.save(state, base=base, strategy=DELTA)
        found.append(base)
    return found


def plain(store: ModelStore, state: State) -> str:
    """The same weights under other names, so that they are another model: a plain snapshot."""
    return store.save({f"plain.{name}": tensor for name, tensor in state.items()}, strategy=Snapshot(compress=False))


def verification(store: ModelStore, model: str, setting: Setting) -> Spread:
    """Share of the recovery that goes when nothing is verified, paired by round."""
    found = interleave({"with": loading(store, model), "without": loading(store, model, verify=False)}, setting.machine)
    shares = [max(0.0, 1 - b.seconds / a.seconds) for a, b in zip(found.runs["with"], found.runs["without"], strict=True)]
    return Spread.of(shares)


def saving_baseline(state: State, path: Path) -> Callable[[], Run]:
    """Saves a model as MMlib's baseline does."""
    return lambda: Run(1, baseline_save(state, path))


def loading(store: ModelStore, model: str, *, verify: bool = True) -> Callable[[], Run]:
    """Recovers a model, files in the page cache."""

    def run() -> Run:
        start = time.perf_counter()
        store.load(model, verify=verify)
        return Run(1, time.perf_counter() - start)

    return run


def pair(build: Callable[[], torch.nn.Module]) -> tuple[State, State]:
    """A trained network and its first update."""
    states = flow(build, lr=1e-3, rounds=0)
    return next(states), next(states)


def large(n_parameters: int) -> tuple[State, State]:
    """Of the size of ResNet-152, with updates like those of lr 1e-3: training that one takes longer than measuring it."""
    state = large_state(n_parameters, seed=0)
    return state, step(state, 0)


def large_state(n_parameters: int, seed: int) -> State:
    """Layers of a million parameters and less."""
    generator, left = torch.Generator().manual_seed(seed), n_parameters
    found: State = {}
    while left > 0:
        n = min(left, 1 << 20)
        found[f"layer{len(found)}"] = torch.randn(n, generator=generator) * 0.03
        left -= n
    return found


def step(state: State, seed: int, relative: float = 2e-3) -> State:
    """Every float moves by about ``relative`` of itself."""
    generator = torch.Generator().manual_seed(seed + 1)
    return {
        name: t * (1 + relative * torch.randn(t.shape, generator=generator)) if t.is_floating_point() else t + 1
        for name, t in state.items()
    }


def one(value: float) -> Spread:
    """A figure that needs no rounds."""
    return Spread(value, value, value)
