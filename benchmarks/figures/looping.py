"""The training loop beside the same updates written by hand, with and without downsampling of every batch."""

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.contenders.hand_written import Setup, Written, dlrm, mlp, run_of
from benchmarks.measure import ROUNDS, Machine, Run, Spread, interleave
from benchmarks.report import Figure
from modyn_dagster.spec.learning.downsampling import DownsamplingSpec
from modyn_dagster.training import TrainedModel

#: Steps of at least so many milliseconds may take 5 % longer, shorter ones 50 microseconds.
_LONG: Final = 2.0
_SHARE: Final = 1.05
_MICROSECONDS: Final = 50.0
#: What is kept of a batch; choosing it may cost a forward pass and a tenth of one.
_KEPT: Final = 0.5
_FORWARD: Final = 1.1
#: Rows of a pass, by whether it shall be quick.
_ROWS: Final = {False: 40_000, True: 4_000}
_POLICIES: Final = {"loss": {}, "dlis": {"start": "always"}, "entropy": {}}


def overhead(machine: Machine, *, quick: bool, setups: Sequence[Setup] = ()) -> Iterator[Figure]:
    """Compare loops step by step, of other setups than the usual ones if any are given.

    ``loop.<setup>.ratio`` for long steps, ``loop.<setup>.microseconds`` for short ones, and milliseconds of both loops.
    """
    for setup in setups or _setups(_ROWS[quick]):
        yield from _compared(setup, machine)


def batch_then_sample(machine: Machine, *, quick: bool, setups: Sequence[Setup] = ()) -> Iterator[Figure]:
    """``bts.<setup>.<policy>.<figure>``, half of every batch being kept.

    ``forward`` is what choosing costs over a forward pass by hand; ``step`` is the whole step over one by hand that sends the
    batch through the model, then learns from the first half of it without having chosen anything. ``by_hand.forward`` is what
    a few calls of torch cost that choose by loss, and ``plain`` what ours costs over them.
    """
    policies = ("loss",) if quick else tuple(_POLICIES)
    for setup in setups or _setups(_ROWS[quick]):
        yield from _chosen(setup, policies, machine)


def _setups(n: int) -> list[Setup]:
    return [mlp("mlp_small", n, 64, [64, 64]), mlp("mlp_large", n // 4, 1024, [1024, 1024]), dlrm("dlrm", n, 512)]


def _compared(setup: Setup, machine: Machine) -> Iterator[Figure]:
    contenders = {"ours": lambda: run_of(setup.ours()), "by_hand": lambda: setup.by_hand().run}
    rounds = interleave(contenders, machine, rounds=ROUNDS, warm_up=1)
    for name in contenders:
        yield Figure(f"loop.{setup.name}.{name}", f"{setup.what}, {name}", _scaled(rounds.seconds(name), setup, 1e3), "ms/step")
    pairs = list(zip(rounds.runs["ours"], rounds.runs["by_hand"], strict=True))
    extra = Spread.of([1e6 * (ours.seconds - hand.seconds) / setup.n_steps for ours, hand in pairs])
    ratio = Spread.of([ours.seconds / hand.seconds for ours, hand in pairs])
    share, microseconds = goals(1e3 * rounds.seconds("by_hand").value / setup.n_steps)
    what = f"{setup.what}, the loop over one by hand"
    yield Figure(f"loop.{setup.name}.ratio", what, ratio, "x", share, at_most=True)
    yield Figure(f"loop.{setup.name}.microseconds", f"{what}, a step", extra, "us", microseconds, at_most=True)


def goals(milliseconds: float) -> tuple[float | None, float | None]:
    """For a step of so many: at most this ratio, or at most so many microseconds more.

    >>> goals(2.0), goals(1.9)
    ((1.05, None), (None, 50.0))
    """
    return (_SHARE, None) if milliseconds >= _LONG else (None, _MICROSECONDS)


def _chosen(setup: Setup, policies: tuple[str, ...], machine: Machine) -> Iterator[Figure]:
    written, drawn = list[Written](), list[Written]()
    trained = {name: list[TrainedModel]() for name in policies}

    def by_hand() -> Run:
        written.append(setup.by_hand(_KEPT))
        return written[-1].run

    def drawn_by_hand() -> Run:
        drawn.append(setup.by_hand(_KEPT, chosen=True))
        return drawn[-1].run

    def ours(name: str) -> Run:
        spec = DownsamplingSpec.model_validate({"policy": name, "ratio": _KEPT, "options": _POLICIES[name]})
        trained[name].append(setup.ours(spec))
        return run_of(trained[name][-1])

    contenders = {"by_hand": by_hand, "drawn_by_hand": drawn_by_hand} | {name: lambda name=name: ours(name) for name in policies}
    rounds = interleave(contenders, machine, rounds=ROUNDS, warm_up=1)
    passes = [each.judged for each in written[-ROUNDS:]]
    what = f"{setup.what}, half of them kept"
    yield Figure(f"bts.{setup.name}.pass", f"{what}: a forward pass", _scaled(Spread.of(passes), setup, 1e3), "ms/step")
    draws = [each.judged for each in drawn[-ROUNDS:]]
    least = Spread.of([one / other for one, other in zip(draws, passes, strict=True)])
    yield Figure(f"bts.{setup.name}.by_hand.forward", f"{what} by loss, drawn by hand: choosing / the pass", least, "x")
    for name in policies:
        prefix, by = f"bts.{setup.name}.{name}", f"{what} by {name}"
        choosing = [found.seconds["select"] for found in trained[name][-ROUNDS:]]
        yield Figure(f"{prefix}.choosing", f"{by}: choosing", _scaled(Spread.of(choosing), setup, 1e3), "ms/step")
        forward = Spread.of([one / other for one, other in zip(choosing, passes, strict=True)])
        yield Figure(f"{prefix}.forward", f"{by}: choosing / the pass", forward, "x", _FORWARD, at_most=True)
        plain = Spread.of([one / other for one, other in zip(choosing, draws, strict=True)])
        yield Figure(f"{prefix}.plain", f"{by}: choosing / choosing by loss by hand", plain, "x")
        step = Spread.of([a.seconds / b.seconds for a, b in zip(rounds.runs[name], rounds.runs["by_hand"], strict=True)])
        yield Figure(f"{prefix}.step", f"{by}: the step / one by hand", step, "x", _FORWARD, at_most=True)


def _scaled(seconds: Spread, setup: Setup, factor: float) -> Spread:
    return Spread(*(factor * value / setup.n_steps for value in (seconds.value, seconds.min, seconds.max)))
