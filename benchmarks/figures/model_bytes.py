"""Bytes of stored models, of those of their tensors."""

import statistics
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.measure import Spread
from benchmarks.model_flows import first, flow, last_layer, n_bytes, standard_flow
from benchmarks.model_setting import Setting, folder, in_line, one, saved
from benchmarks.report import Figure
from modyn_dagster.model_store import Snapshot


def full_updates(setting: Setting) -> Iterator[Figure]:
    """G2: a flow of 10 models, every layer trained."""
    recipe = setting.network
    for name, (value, what) in recipe.conditions().items():
        yield Figure(f"G2.{name}", "condition of G2", one(value), what)
    for lr, goal in ((1e-3, 0.63), (1e-4, 0.53)):
        with folder() as store:
            states = standard_flow(recipe, lr=lr, iterations=setting.iterations)
            shares = [store.size(model) / n_bytes(state) for model, state in saved(store, states)]
        whole = Spread(statistics.fmean(shares), min(shares), max(shares))
        yield Figure(f"G2.{lr:g}", f"flow of {len(shares)}, lr {lr:g}, of full bytes", whole, "x", goal, True, str(recipe))


def last_layers(setting: Setting) -> Iterator[Figure]:
    """G3: the last layer alone trained."""
    recipe = setting.network
    with folder() as store:
        models = saved(store, in_line(flow(recipe, lr=1e-3, updates=setting.iterations, only_last=True)))
        shares = [
            store.size(model) / sum(state[name].nbytes for name in store.diff(before, model))
            for (before, _), (model, state) in pairwise(models)
        ]
    what = f"{last_layer(recipe.build())} alone, of its plain bytes"
    yield Figure("G3", what, Spread.of(shares), "x", 0.85, True, f"{recipe}, lr 1e-3")


def snapshots(setting: Setting) -> Iterator[Figure]:
    """G4: a trained model without a base, as it is and cast to bf16."""
    state = first(setting.network)
    cast = {name: t.bfloat16() if t.is_floating_point() else t for name, t in state.items()}
    for name, tensors, goal in (("fp32", state, 0.845), ("bf16", cast, 0.69)):
        with folder() as store:
            share = store.size(store.save(tensors, strategy=Snapshot(compress=True))) / n_bytes(tensors)
        yield Figure(f"G4.{name}", f"snapshot without a base, of raw {name}", one(share), "x", goal, True)
