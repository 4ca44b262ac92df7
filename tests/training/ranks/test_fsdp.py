"""A model whose weights are divided among the ranks: as close to one process as with whole copies, resumable, refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, PreviousModel, Task, TrainedModel, train_in_ranks
from modyn_dagster.training.data import check_ranks
from tests.training.ranks.test_ranks import CLOSE, distance
from tests.training.ranks.together import Case, Ended, rows, run, together
from tests.training.resumable import resumable
from tests.training.table import spec_of

pytestmark = pytest.mark.process

_CODE: Final = "tests.training.ranks_user_code"
#: Trainings whose bits of a rank are put together from parts of its state.
RESUMED: Final = (
    "momentum_and_schedule",
    "two_optimizers",
    "average_and_clipping",
    "accumulation",
    "early_stopping",
    "dlis",
    "rho",
)
#: Trainings of other optimizers, with groups and several at once.
OPTIMIZERS: Final = ("adamw", "adamax", "nadam", "radam", "adagrad", "adadelta", "rmsprop")


def optimized(name: str) -> Case:
    common: dict[str, Any] = {"model": {"name": "mlp", "hidden": [8]}, "epochs": 5, "batch_size": 32, "precision": "64-true"}
    return Case(spec_of(**common, ranks=2, optimizer={"name": name, "lr": 0.01}))


@pytest.fixture(autouse=True)
def own_code(user_code: str) -> None:
    """Some of the trainings name it."""


def assert_close(name: str, case: Case, ends: list[Ended]) -> None:
    """Compare a training with divided weights with that of one process."""
    (first, *others), alone = ends, run(case.alone())
    assert first.model is not None, (name, first.error)
    assert alone.model is not None
    assert distance(first, alone) <= (1e-9 if case.spec.precision == "64-true" else 1e-4), name
    assert first.model.losses == pytest.approx(alone.model.losses, rel=1e-6), name
    assert {other.bits for other in others} == {first.bits}, name
    assert first.weights.shape == alone.weights.shape


def assert_all_close(cases: dict[str, Case], ranks: int) -> None:
    ends = together([case.divided(ranks) for case in cases.values()], ranks)
    for (name, case), found in zip(cases.items(), ends, strict=True):
        assert_close(name, case, found)


def resumed_cases(name: str, folder: Path) -> list[Case]:
    """A training as a whole, broken off at a batch, and the next attempt."""
    whole, file = Case(resumable(name)).divided(), folder / name
    return [whole, replace(whole, checkpoint=file, stop=5), replace(whole, checkpoint=file)]


def assert_resumed(name: str, whole: list[Ended], broken: list[Ended], resumed: list[Ended]) -> None:
    """Compare the end of a training that was broken off with that of the whole one."""
    assert [ended.error for ended in (*whole, *broken, *resumed)] == [None] * 6, name
    assert all(ended.model is None for ended in broken), name
    assert {ended.bits for ended in (*whole, *resumed)} == {whole[0].bits}, name
    assert 0 < len(resumed[0].keys) < len(whole[0].keys), name


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_kind_of_training_is_close_with_divided_weights(ranks: int) -> None:
    # A weight that no sample of a step uses has a gradient of zero here, and none in one process.
    kinds = {name: case for name, case in CLOSE.items() if name != "partly_used" and case.spec.pretrained is None}
    assert_all_close(kinds | {name: optimized(name) for name in OPTIMIZERS}, ranks)


@pytest.mark.soak("distributed")
def test_a_layer_that_only_some_ranks_use_is_no_obstacle() -> None:
    # Without momentum, which a gradient of zero would change.
    plain = spec_of(optimizer={"name": "sgd", "lr": 0.1}).optimizer
    case = replace(CLOSE["partly_used"], spec=CLOSE["partly_used"].spec.model_copy(update={"optimizer": plain}))
    assert_all_close({"partly_used": case}, 2)


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_choose_among_equal_layers_by_their_samples_are_refused_at_the_first_step_that_differs(ranks: int) -> None:
    (ends,) = together([Case(spec_of(model={"factory": f"{_CODE}:Routed"}, batch_size=10)).divided(ranks)], ranks)
    for ended in ends:
        with pytest.raises(
            ConfigError, match=r"training\.strategy: ranks are at different layers \(experts\.\d and experts\.\d\)"
        ):
            raise ended.error or AssertionError("it was not refused")


@pytest.mark.soak("distributed")
def test_a_broken_off_training_of_divided_weights_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    cases = [case for name in RESUMED for case in resumed_cases(name, tmp_path)]
    ends = together(cases)
    for i, name in enumerate(RESUMED):
        assert_resumed(name, *ends[3 * i : 3 * i + 3])


def trained(case: Case, **options: Any) -> TrainedModel:
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p"}
    return train_in_ranks(LocalGroup(), case.spec, rows(case.n, 1).data(fast_path=FastPath(cache_bytes=0)), **given | options)


@pytest.mark.soak("distributed")
def test_a_second_model_goes_on_with_the_whole_state_of_the_first() -> None:
    fields: dict[str, Any] = {"use_previous_model": True, "carry_optimizer": True}
    case = Case(resumable("momentum_and_schedule", **fields)).divided()
    first = trained(case)
    assert first.optimizers is not None
    (momentum, *_) = (state["momentum_buffer"] for state in first.optimizers[0]["state"].values())
    assert type(momentum) is torch.Tensor
    assert momentum.shape == first.state_dict["body.0.weight"].shape
    previous = PreviousModel(first.state_dict, first.architecture, first.optimizers)
    replicated = replace(case, spec=case.spec.model_copy(update={"strategy": "replicated"}))
    again, other = trained(case, previous=previous), trained(replicated, previous=previous)
    assert Ended(again).bits != Ended(first).bits
    assert distance(Ended(again), Ended(other)) <= 1e-4


@pytest.mark.soak("distributed")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"factory": f"{_CODE}:tied_in_a_row"}}, r"training\.strategy: two layers of the model have one weight"),
        ({"model": {"factory": f"{_CODE}:scalar"}}, r"training\.strategy: cannot divide the model's weights: .*scalar"),
    ],
    ids=["tied", "scalar"],
)
def test_a_model_that_cannot_be_divided_is_refused(fields: dict[str, Any], message: str) -> None:
    (ends,) = together([Case(spec_of(**fields)).divided()])
    for ended in ends:
        with pytest.raises(ConfigError, match=message):
            raise ended.error or AssertionError("it was not refused")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"p: training\.strategy: needs `ranks` above 1"),
        ({"ranks": 2, "precision": "bf16-mixed"}, r"p: training\.precision: is not divided among ranks"),
        ({"ranks": 2, "compile": {}}, r"p: training\.compile: is not possible with `strategy: fsdp`"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_a_run(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_ranks(spec_of(strategy="fsdp", **fields), source="p")


def test_whole_copies_are_no_change_of_a_spec() -> None:
    spec: TrainingSpec = spec_of(strategy="replicated")
    assert "strategy" not in spec.model_dump()
    assert spec_of(strategy="fsdp").model_dump()["strategy"] == "fsdp"
