"""Fleet of nodes that train a given model and send back the result (DIST-20 of MMlib)."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks.measure import Spread
from benchmarks.model_flows import Recipe, standard_flow
from benchmarks.model_setting import DELTA, Setting, folder
from benchmarks.report import Figure
from modyn_dagster.model_store import ModelStore

#: Nodes that save the same model at once.
_SAME = 20


def fleet(setting: Setting) -> Iterator[Figure]:
    """G10: 402 models beside the flow of 10; 20 nodes that save the same model."""
    with folder() as store:
        few = _costs(store, setting.small, 1, setting.iterations)
    with folder() as store:
        many = _costs(store, setting.small, *setting.nodes)
        added = _added_by_the_same(store)
    for name, limit in (("bytes", 1.10), ("saving", 1.25), ("recovery", 1.25)):
        reference = statistics.median(few[name])
        ratio = Spread.of([each / reference for each in many[name]])
        what = f"{name} per derived model of {len(many[name]) + 1}, of the median in a flow of {len(few[name]) + 1}"
        yield Figure(f"G10.{name}", what, ratio, "x", limit, True, str(setting.small))
    what = f"models added by {_SAME} nodes that save the same new one at once"
    yield Figure("G10.same", what, Spread.of([added]), "models", 1, True)


def _costs(store: ModelStore, recipe: Recipe, nodes: int, iterations: int) -> Mapping[str, Sequence[float]]:
    """Bytes, seconds to save and seconds to recover of every derived model."""
    models: list[str] = []
    found: dict[str, list[float]] = {"bytes": [], "saving": [], "recovery": []}
    for parent, state in standard_flow(recipe, lr=1e-3, nodes=nodes, iterations=iterations):
        base = None if parent is None else models[parent]
        started = time.perf_counter()
        model = store.save(state, base=base, strategy=DELTA)
        there = time.perf_counter()
        store.load(model)
        ended = time.perf_counter()
        models.append(model)
        if base is not None:
            found["bytes"].append(store.size(model))
            found["saving"].append(there - started)
            found["recovery"].append(ended - there)
    return found


def _added_by_the_same(store: ModelStore) -> int:
    before = store.list()
    state = {name: tensor.clone() for name, tensor in store.load(before[0]).items()}
    state["node"] = torch.arange(1000.0)
    with ThreadPoolExecutor(_SAME) as pool:
        list(pool.map(lambda _: store.save(state, base=before[0], strategy=DELTA), range(_SAME)))
    return len(store.list()) - len(before)
