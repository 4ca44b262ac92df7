"""The loops that are compared, and the figures that come of it."""

import pytest
import torch

from benchmarks.contenders.hand_written import Setup, dlrm, mlp, run_of
from benchmarks.figures import looping
from benchmarks.figures.determinism import determinism
from benchmarks.figures.encoding import encoding
from benchmarks.measure import Machine

SETUPS = [lambda: mlp("mlp", 300, 64, [8, 8]), lambda: dlrm("dlrm", 100, 32)]
TINY = [mlp("tiny", 100, 32, [4])]


@pytest.mark.parametrize("make", SETUPS)
def test_the_loop_by_hand_makes_the_same_updates_bit_for_bit(make):
    setup: Setup = make()
    ours, written = setup.ours(), setup.by_hand()
    weights = written.model.state_dict()
    found = {name.removeprefix("body."): tensor for name, tensor in ours.state_dict.items()}
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(found[name], tensor), name
    assert run_of(ours).units == written.run.units == setup.n_steps == ours.n_steps


def test_what_is_kept_of_a_batch_is_learnt_from_after_all_of_it_was_judged():
    setup = mlp("mlp", 300, 64, [8])
    written = setup.by_hand(0.5)
    assert 0 < written.judged < written.run.seconds
    assert setup.by_hand().judged == 0
    assert not torch.equal(written.model.state_dict()["0.weight"], setup.by_hand().model.state_dict()["0.weight"])


@pytest.mark.long
def test_choosing_is_compared_with_a_forward_pass_and_a_whole_step():
    found = {figure.id: figure for figure in looping.batch_then_sample(Machine(), quick=False, setups=TINY)}
    told = ("choosing", "forward", "plain", "step")
    parts = {f"bts.tiny.{policy}.{part}" for policy in ("loss", "dlis", "entropy") for part in told}
    assert found.keys() == parts | {"bts.tiny.pass", "bts.tiny.by_hand.forward"}
    assert all(figure.spread is not None and figure.spread.min > 0 for figure in found.values())
    assert {name.rsplit(".", 1)[1] for name, figure in found.items() if figure.goal == 1.1} == {"forward", "step"}


@pytest.mark.soak("benchmarks")
@pytest.mark.process
def test_the_loops_are_compared_step_by_step():
    found = {figure.id: figure for figure in looping.overhead(Machine(), quick=True, setups=TINY)}
    assert found.keys() == {f"loop.tiny.{part}" for part in ("ours", "by_hand", "ratio", "microseconds")}
    milliseconds = found["loop.tiny.by_hand"].spread
    assert milliseconds is not None
    # Steps are long on a busy machine.
    assert (found["loop.tiny.ratio"].goal, found["loop.tiny.microseconds"].goal) == looping.goals(milliseconds.value)


def test_a_short_step_has_its_goal_in_microseconds_and_a_long_one_in_percent():
    assert looping.goals(2.0) == (1.05, None)
    assert looping.goals(1.99) == (None, 50.0)


@pytest.mark.soak("benchmarks")
def test_what_determinism_costs_is_told_stage_by_stage():
    found = {figure.id: figure for figure in determinism(Machine(), quick=True)}
    of = [f"determinism.resnet18.{stage}" for stage in ("load", "forward", "backward")]
    assert found.keys() == {f"{name}.{part}" for name in of for part in ("free", "deterministic", "ratio")}
    for figure in found.values():
        assert figure.spread is not None
        assert 0 < figure.spread.min <= figure.spread.value <= figure.spread.max


@pytest.mark.soak("benchmarks")
def test_training_on_encoded_text_is_compared_with_training_on_its_numbers():
    found = {figure.id: figure for figure in encoding(Machine(), quick=True)}
    assert found.keys() == {f"encode.1.{part}" for part in ("plain", "plain.prepare", "encoded", "encoded.prepare", "ratio")}
    assert all(figure.spread is not None and figure.spread.min > 0 for figure in found.values())
