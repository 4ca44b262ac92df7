"""MMlib itself beside our model store: a chain of derived models, their bytes, seconds to save and to recover each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from torch import nn

from benchmarks.contenders.mmlib_models import APPROACHES
from benchmarks.measure import Rounds, Spread
from benchmarks.model_flows import Recipe, State, flow, n_bytes
from benchmarks.model_keepers import Keeper, differing, keepers, module_of
from benchmarks.model_setting import Setting, Work, by_both_clocks, nothing
from benchmarks.report import Figure


@dataclass(frozen=True)
class Limits:
    """Goals: seconds to save and to recover over those of MMlib's baseline, and of the last recovery over the first derived."""

    save: float | None = None
    recover: float | None = None
    stairs: float | None = None


#: Those of G5 and G6, which speak of that baseline, where every layer is trained.
_LIMITS: Final = {"network": Limits(1.5, 1.2, 1.1), "large": Limits(1.0, 1.2, 1.1)}


@dataclass(frozen=True)
class Chain:
    """States, each derived from the one before, and who keeps them; ids of figures begin with ``figure``."""

    figure: str
    recipe: Recipe
    states: Sequence[State]
    keepers: Mapping[str, Keeper]
    limits: Limits = Limits()

    @property
    def ours(self) -> list[str]:
        """Names of those that are not MMlib's."""
        return [name for name in self.keepers if name not in APPROACHES]


def beside(size: str, setting: Setting) -> Iterator[Figure]:
    """Every layer trained, then, but for a quick measurement, the last one alone; ``size`` is ``network`` or ``large``."""
    recipe = {"network": setting.network, "large": setting.large}[size]
    for update in ("full",) if setting.is_quick else ("full", "partial"):
        figure = f"MMlib.{size}.{update}"
        if setting.mmlib is None:
            yield Figure(figure, "MMlib itself beside ours", None, "x", note="needs --mmlib FOLDER")
            continue
        states = list(flow(recipe, lr=1e-3, updates=setting.beside - 1, only_last=update == "partial"))
        with keepers(setting.mmlib, recipe, update) as each:
            limits = _LIMITS[size] if update == "full" else Limits()
            yield from figures_of(Chain(figure, recipe, states, each, limits), setting)


def figures_of(chain: Chain, setting: Setting) -> Iterator[Figure]:
    """Bytes, saving, recovery; ``RuntimeError`` names the first tensor of a model that comes back different."""
    modules = [module_of(chain.recipe, state) for state in chain.states]
    models = {name: _saved(keeper, modules[:-1]) for name, keeper in chain.keepers.items()}
    contenders = {name: _saving(keeper, modules[-1], models[name][-1]) for name, keeper in chain.keepers.items()}
    saving = by_both_clocks(contenders, setting.machine)
    for name, keeper in chain.keepers.items():
        models[name].append(keeper.save(modules[-1], models[name][-1]))
    del modules
    yield from _bytes(chain, models)
    yield from _of_saving(chain, saving)
    recovering = {
        f"{name}.{n}": _recovering(keeper, models[name][n], state)
        for name, keeper in chain.keepers.items()
        for n, state in enumerate(chain.states)
    }
    building = {"build": partial(_building, chain.recipe)}
    yield from _of_recovery(chain, by_both_clocks(recovering | building, setting.machine))


def _bytes(chain: Chain, models: Mapping[str, Sequence[str]]) -> Iterator[Figure]:
    sizes = {name: [keeper.size(model) for model in models[name][1:]] for name, keeper in chain.keepers.items()}
    whole = f"{n_bytes(chain.states[-1]) / 1e6:.1f} MB of tensors, lr 1e-3; {chain.recipe}"
    for name, found in sizes.items():
        megabytes = Spread.of([size / 1e6 for size in found])
        note = whole if name == "ba" else ""
        yield Figure(f"{chain.figure}.bytes.{name}", f"a derived model, {name}", megabytes, "MB", note=note)
    for name in chain.ours:
        ratios = [a / b for a, b in zip(sizes[name], sizes["pua"], strict=True)]
        yield Figure(f"{chain.figure}.bytes.{name}.pua", f"bytes of {name}, of PUA's", Spread.of(ratios), "x", at_most=True)


def _of_saving(chain: Chain, clocks: tuple[Rounds, Rounds]) -> Iterator[Figure]:
    for name in chain.keepers:
        seconds = clocks[0].seconds(name)
        yield Figure(f"{chain.figure}.save.{name}", f"to save a derived model, {name}", seconds, "s", note=_synced(name))
    for name in chain.ours:
        for approach in APPROACHES:
            goal = chain.limits.save if approach == "ba" else None
            what = f"to save, {name}, of {approach.upper()}'s"
            yield from _ratios(f"{chain.figure}.save.{name}.{approach}", what, clocks, approach, name, goal)


def _of_recovery(chain: Chain, clocks: tuple[Rounds, Rounds]) -> Iterator[Figure]:
    wall, last = clocks[0], len(chain.states) - 1
    yield Figure(f"{chain.figure}.build", "to build the network, part of every recovery", wall.seconds("build"), "s")
    for name in chain.keepers:
        for n in range(last + 1):
            seconds = wall.seconds(f"{name}.{n}")
            yield Figure(f"{chain.figure}.recover.{name}.{n}", f"to recover model {n} of a chain, {name}", seconds, "s")
    # Of two models the last derived one is the first.
    for name in chain.keepers if last > 1 else ():
        goal = chain.limits.stairs if name in chain.ours else None
        what = f"last derived recovery, of the first's, {name}"
        yield from _ratios(f"{chain.figure}.stairs.{name}", what, clocks, f"{name}.1", f"{name}.{last}", goal)
    for name in chain.ours:
        for approach in APPROACHES:
            goal = chain.limits.recover if approach == "ba" else None
            what = f"to recover model {last}, {name}, of {approach.upper()}'s"
            figure = f"{chain.figure}.recover.{name}.{approach}"
            yield from _ratios(figure, what, clocks, f"{approach}.{last}", f"{name}.{last}", goal)


def _ratios(
    figure: str, what: str, clocks: tuple[Rounds, Rounds], theirs: str, ours: str, goal: float | None
) -> Iterator[Figure]:
    wall, processor = (found.ratio(theirs, ours) for found in clocks)
    yield Figure(figure, f"seconds {what}", wall, "x", goal, True)
    yield Figure(f"{figure}.cpu", f"seconds of the processor {what}", processor, "x", at_most=True)


def _synced(name: str) -> str:
    return "not synced to the disk" if name in APPROACHES else "synced to the disk"


def _saved(keeper: Keeper, modules: Sequence[nn.Module]) -> list[str]:
    models: list[str] = []
    for module in modules:
        models.append(keeper.save(module, models[-1] if models else None))
    return models


def _saving(keeper: Keeper, module: nn.Module, base: str) -> Work:
    before = keeper.contents()

    def work() -> Callable[[], object]:
        keeper.save(module, base)
        return lambda: keeper.keep(before)

    return work


def _recovering(keeper: Keeper, model: str, expected: State) -> Work:
    def work() -> Callable[[], object]:
        module = keeper.recover(model)

        def compare() -> None:
            if (name := differing(module.state_dict(), expected)) is not None:
                raise RuntimeError(f"{type(keeper).__name__}, model {model}: {name} came back different")

        return compare

    return work


def _building(recipe: Recipe) -> Callable[[], object]:
    recipe.build()
    return nothing
