"""Times of the model store beside those of MMlib's baseline, by the clock and in seconds of the processor."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Rounds, Spread
from benchmarks.model_baseline import baseline_load, baseline_save
from benchmarks.model_flows import State, flow, n_bytes
from benchmarks.model_setting import DELTA, Setting, Work, by_both_clocks, folder, in_line, loading, nothing, saved
from benchmarks.report import Figure
from modyn_dagster.model_store import ModelStore, Snapshot

#: What a figure in seconds of the processor adds to its id; there is no goal for it.
_CPU = ".cpu"


def saving(setting: Setting) -> Iterator[Figure]:
    """G5: seconds to save a delta, of the baseline's."""
    for name, recipe, goal in (("large", setting.large, 1.0), ("network", setting.network, 1.5), ("small", setting.small, 1.5)):
        before, after = flow(recipe, lr=1e-3, updates=1)
        with folder() as store:
            base = store.save(before, strategy=Snapshot(compress=True))
            contenders = {"delta": _saving(store, after, base), "baseline": _baseline(store, after)}
            clocks = by_both_clocks(contenders, setting.machine)
            what = f"to save a delta of {recipe.build.__name__}, of the baseline's"
            note = f"{n_bytes(after) / 1e6:.1f} MB, {len(after)} tensors, {store.threads} threads"
        yield from _ratios(f"G5.{name}", what, clocks, "delta", "baseline", goal, note)


def chain(setting: Setting) -> Iterator[Figure]:
    """G6: no staircase."""
    with folder() as store:
        states = flow(setting.network, lr=1e-3, updates=setting.chain - 1)
        models = [model for model, _ in saved(store, in_line(states))]
        path = store.root / "baseline.pt"
        baseline_save(store.load(models[-1]), path)

        def baseline() -> Callable[[], object]:
            baseline_load(path)
            return nothing

        contenders: dict[str, Work] = {f"{n}": loading(store, model) for n, model in enumerate(models)}
        clocks = by_both_clocks(contenders | {"baseline": baseline}, setting.machine)
        for suffix, found in zip(("", _CPU), clocks, strict=True):
            ratios = [found.ratio("baseline", name) for name in contenders]
            worst = max(ratios, key=lambda spread: spread.value)
            what = f"slowest recovery in a chain of {len(models)}, of the baseline's"
            yield Figure(f"G6{suffix}", what, worst, "x", None if suffix else 1.2, True, str(setting.network))
        for suffix, found in zip(("", _CPU), clocks, strict=True):
            last = found.ratio("1", f"{len(models) - 1}")
            yield Figure(f"G6.last{suffix}", "last derived recovery, of the first's", last, "x", None if suffix else 1.1, True)


def verification(setting: Setting) -> Iterator[Figure]:
    """G7: what verification adds to a recovery, of the whole."""
    for name, recipe in (("large", setting.large), ("network", setting.network)):
        with folder() as store:
            before, after = flow(recipe, lr=1e-3, updates=1)
            base = store.save(before, strategy=Snapshot(compress=True))
            # Under other names they are another model.
            plain = {f"plain.{name}": tensor for name, tensor in before.items()}
            models = {
                "delta": (store.save(after, base=base, strategy=DELTA), 0.25),
                "plain": (store.save(plain, strategy=Snapshot(compress=False)), 0.5),
            }
            for kind, (model, limit) in models.items():
                contenders = {"with": loading(store, model), "without": loading(store, model, verify=False)}
                clocks = by_both_clocks(contenders, setting.machine)
                for suffix, found in zip(("", _CPU), clocks, strict=True):
                    what = f"verification, of the recovery of a {kind} {recipe.build.__name__}"
                    goal = None if suffix else limit
                    yield Figure(f"G7.{kind}.{name}{suffix}", what, _saved_without(found), "x", goal, True)


def _saved_without(found: Rounds) -> Spread:
    """The share of seconds that goes when nothing is verified, paired by round."""
    pairs = zip(found.runs["with"], found.runs["without"], strict=True)
    return Spread.of([max(0.0, 1 - without.seconds / verified.seconds) for verified, without in pairs])


def _ratios(
    figure: str, what: str, clocks: tuple[Rounds, Rounds], ours: str, theirs: str, goal: float, note: str
) -> Iterator[Figure]:
    wall, processor = (found.ratio(theirs, ours) for found in clocks)
    yield Figure(figure, f"seconds {what}", wall, "x", goal, True, note)
    yield Figure(f"{figure}{_CPU}", f"seconds of the processor {what}", processor, "x", at_most=True, note=note)


def _saving(store: ModelStore, state: State, base: str) -> Work:
    def work() -> Callable[[], object]:
        model = store.save(state, base=base, strategy=DELTA)
        return lambda: store.delete(model)

    return work


def _baseline(store: ModelStore, state: State) -> Work:
    path: Path = store.root / "baseline.pt"

    def work() -> Callable[[], object]:
        baseline_save(state, path)
        return path.unlink

    return work
