"""Downsampling inside a training."""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import CheckpointFile, FastPath, PreviousModel, Task, TrainedModel, TrainingProgress, train
from modyn_dagster.training.downsampling import POLICIES
from modyn_dagster.training.downsampling.policies.importance import ImportanceStart
from modyn_dagster.training.loop.holdout import irreducible_losses
from modyn_dagster.training.models.losses import LOSSES
from modyn_dagster.training.user_code import import_paths
from tests.training.downsampling.pools import assert_mean
from tests.training.table import FASTEST, Table, spec_of

CLASSES = Task("class", n_classes=2)
MODES = ["batch_then_sample", "sample_then_batch"]
SCORED = ["least_confidence", "margin", "entropy", "rho", "el2n", "grand", "glister"]


def trained(
    table: Table,
    spec: TrainingSpec,
    *,
    weights: npt.ArrayLike | None = None,
    fast_path: FastPath = FASTEST,
    task: Task = CLASSES,
    seed: int = 3,
    **options: Any,
) -> TrainedModel:
    return train(spec, table.data(weights, fast_path), task=task, seed=seed, threads=1, source="pipeline p", **options)


def sampled(policy: object, mode: str = "batch_then_sample", *, ratio: float = 0.5, **fields: Any) -> TrainingSpec:
    own = {"period", "options", "gradient", "self_normalised", "holdout", "schedule"}
    given = {name: fields.pop(name) for name in list(fields) if name in own}
    return spec_of(downsampling={"policy": policy, "mode": mode, "ratio": ratio, **given}, **fields)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_trains_in_both_modes_and_the_same_bits_again_from_memory_or_not(
    separable: Table, name: str, mode: str
) -> None:
    spec = sampled(name, mode, ratio=0.3, epochs=2, batch_size=50, model={"name": "mlp", "hidden": [4]}, holdout={"epochs": 1})
    found = trained(separable, spec)
    assert {"select", "forward", "step"} <= found.seconds.keys()
    again = trained(separable, spec, fast_path=FastPath(cache_bytes=0))
    for key, tensor in found.state_dict.items():
        assert tensor.numpy().tobytes() == again.state_dict[key].numpy().tobytes()
    assert (found.losses, found.curve) == (again.losses, again.curve)
    assert all(np.isfinite(found.losses))


@pytest.mark.parametrize("name", SCORED)
def test_both_modes_choose_the_same_where_one_batch_holds_everything(separable: Table, name: str) -> None:
    start = trained(separable, spec_of(epochs=3, batch_size=20, optimizer={"lr": 0.05}))
    previous = PreviousModel(start.state_dict, start.architecture)
    one, other = (
        trained(separable, sampled(name, mode, batch_size=500, optimizer={"name": "sgd", "lr": 1.0}), previous=previous)
        for mode in MODES
    )
    torch.testing.assert_close(one.state_dict, other.state_dict, rtol=1e-5, atol=1e-5)
    assert not torch.equal(one.state_dict["body.weight"], start.state_dict["body.weight"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["uniform", "rs2_without_replacement", "least_confidence"])
def test_all_of_it_is_plain_training_with_the_weights_of_the_training_set(separable: Table, name: str, mode: str) -> None:
    """Also where batches differ in their weights."""
    weights = np.linspace(0.5, 3, separable.n) if mode == "batch_then_sample" else None
    fields: dict[str, Any] = {"epochs": 2, "batch_size": 500, "optimizer": {"name": "sgd", "lr": 0.3}}
    plain = trained(separable, spec_of(**fields), weights=weights)
    whole = trained(separable, sampled(name, mode, ratio=1.0, **fields), weights=weights)
    torch.testing.assert_close(whole.state_dict, plain.state_dict, rtol=1e-4, atol=1e-5)
    assert whole.losses == pytest.approx(plain.losses, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("loss", {"replacement": False}),
        *(
            pytest.param(*each, marks=pytest.mark.soak("laws-training"))
            for each in (("loss", {}), ("dlis", {"start": "always"}), ("uniform", {}), ("infobatch", {}))
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", MODES)
def test_steps_are_unbiased_whatever_the_weights_of_the_training_set(
    separable: Table, name: str, options: dict[str, Any], mode: str
) -> None:
    """A step of SGD moves the weights by the gradient: its mean over seeds is the step on everything."""
    weights = np.random.default_rng(0).uniform(0.5, 3, separable.n)
    start = trained(separable, spec_of(epochs=2, batch_size=20, optimizer={"lr": 0.03}))
    previous = PreviousModel(start.state_dict, start.architecture)
    fields: dict[str, Any] = {"batch_size": 500, "optimizer": {"name": "sgd", "lr": 1.0}}
    plain = trained(separable, spec_of(**fields), weights=weights, previous=previous).state_dict["body.weight"]
    spec = sampled(name, mode, ratio=0.1, options=options, **fields)
    moved = [
        float(trained(separable, spec, weights=weights, previous=previous, seed=seed).state_dict["body.weight"][0, 0])
        for seed in range(40)
    ]
    assert_mean(np.array(moved), float(plain[0, 0]))


@pytest.mark.parametrize("balance", ["proportional", "equal"])
def test_a_last_batch_too_small_for_every_class_is_chosen_from_as_a_whole(separable: Table, balance: str) -> None:
    spec = sampled("uniform", ratio=0.1, batch_size=separable.n - 14, options={"balance": balance})
    assert trained(separable, spec).n_steps == 2


@pytest.mark.parametrize("balance", ["proportional", "equal"])
def test_a_random_set_of_each_class_is_chosen_without_a_forward_pass(separable: Table, balance: str) -> None:
    spec = sampled("uniform", "sample_then_batch", ratio=0.2, options={"balance": balance}, epochs=2)
    plain = trained(separable, sampled("uniform", "sample_then_batch", ratio=0.2, epochs=2))
    assert trained(separable, spec).losses != plain.losses


def test_a_self_normalised_estimate_divides_by_what_was_drawn(separable: Table) -> None:
    """With equal weights that is the plain mean, and so is the estimate; with unequal ones they differ."""
    fields: dict[str, Any] = {"batch_size": 50, "options": {"replacement": True}}
    one, other = (trained(separable, sampled("loss", self_normalised=flag, **fields)) for flag in (True, False))
    assert one.losses != other.losses


@pytest.mark.parametrize(
    ("name", "mode", "steps"),
    [("uniform", "batch_then_sample", 8), ("uniform", "sample_then_batch", 4), ("loss", "sample_then_batch", 4)],
)
def test_the_true_number_of_steps_is_known_before_the_first(separable: Table, name: str, mode: str, steps: int) -> None:
    seen: list[TrainingProgress] = []
    found = trained(separable, sampled(name, mode, ratio=0.45, epochs=2, batch_size=50), progress=seen.append)
    assert found.n_steps == steps
    assert {progress.n_steps for progress in seen} == {steps}


@pytest.mark.parametrize(("period", "asked"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (0, [0])])
def test_a_set_is_sampled_anew_every_period(separable: Table, user_code: str, period: int, asked: list[int]) -> None:
    spec = sampled({"factory": f"{user_code}:Newest"}, "sample_then_batch", period=period, epochs=5)
    seen = importlib.import_module(user_code).ASKED
    seen.clear()
    trained(separable, spec)
    assert seen == asked


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_of_ones_own_decides_what_is_trained_on(separable: Table, user_code: str, mode: str) -> None:
    """The newest half alone, as if the other were not there."""
    fields: dict[str, Any] = {"shuffle": False, "standardize": False, "batch_size": 500, "optimizer": {"name": "sgd", "lr": 1e-3}}
    found = trained(separable, sampled({"factory": f"{user_code}:Newest"}, mode, **fields))
    assert separable.labels is not None
    half = Table({name: column[100:] for name, column in separable.columns.items()}, labels=separable.labels[100:])
    expected = trained(half, spec_of(**fields))
    torch.testing.assert_close(found.state_dict, expected.state_dict)
    path = ("training.downsampling.policy.factory", f"{user_code}:Newest")
    assert path in list(import_paths(sampled({"factory": path[1]})))


def test_dlis_waits_for_tau_and_then_draws_by_importance() -> None:
    start = ImportanceStart()
    peak = torch.zeros(64)
    peak[0] = 1
    for _ in range(4):
        assert not start.reached(64, 16)
        start.observe(peak)
    assert start.reached(64, 16)
    other = ImportanceStart()
    other.load_state_dict(start.state_dict())
    assert other.reached(64, 16)
    for _ in range(60):
        start.observe(torch.ones(64))
    assert not start.reached(64, 16)


def test_before_dlis_starts_it_costs_no_forward_pass_and_is_uniform_with_weight_1(separable: Table, user_code: str) -> None:
    spec = sampled("dlis", epochs=1, batch_size=50, ratio=0.5, optimizer={"name": "sgd", "lr": 1e-9})
    waiting = trained(separable, spec)
    always = trained(separable, sampled("dlis", epochs=1, batch_size=50, options={"start": "always"}, optimizer=spec.optimizer))
    assert waiting.losses != always.losses
    plain = trained(separable, sampled("uniform", epochs=1, batch_size=50, optimizer=spec.optimizer))
    assert waiting.losses == pytest.approx(plain.losses, rel=0.2)


def test_irreducible_losses_are_of_models_that_never_saw_the_sample(separable: Table) -> None:
    """A model that could memorise a wrong label would not find it hard."""
    wrong = np.zeros(200, dtype=bool)
    wrong[::10] = True
    assert separable.labels is not None
    noisy = Table(separable.columns, labels=np.where(wrong, 1 - separable.labels, separable.labels))
    spec = spec_of(epochs=30, batch_size=20, optimizer={"lr": 0.05})

    def train_on(data: Any, _: CheckpointFile | None) -> TrainedModel:
        return train(spec, data, task=CLASSES, seed=1, threads=1, source="p")

    data = noisy.data()
    losses = irreducible_losses(train_on, LOSSES["cross_entropy"], data, None, seed=0, threads=1, source="p").numpy()
    assert losses.shape == (200,)
    assert losses[wrong].mean() > 2 * losses[~wrong].mean()


def test_what_is_set_aside_is_never_trained_on(separable: Table, user_code: str) -> None:
    for name in ("rho", "glister"):
        holdout = {"kind": "simple", "share": 0.25, "epochs": 1}
        seen: list[TrainingProgress] = []
        spec = sampled(name, "sample_then_batch", ratio=1.0, batch_size=10, holdout=holdout)
        found = trained(separable, spec, progress=seen.append)
        assert found.n_steps == 15
    alone = Table({name: column[:1] for name, column in separable.columns.items()}, labels=np.zeros(1, dtype=np.int64))
    with pytest.raises(TrainingError, match="cannot be split"):
        trained(alone, sampled("glister"))


def test_scoring_leaves_dropout_and_its_generator_alone(separable: Table, user_code: str) -> None:
    """Keeping everything trains what plain training does, although every batch was scored before."""
    fields: dict[str, Any] = {"model": {"name": "mlp", "hidden": [8], "dropout": 0.5}, "batch_size": 200, "epochs": 3}
    plain = trained(separable, spec_of(**fields))
    whole = trained(separable, sampled({"factory": f"{user_code}:Newest"}, ratio=1.0, **fields))
    torch.testing.assert_close(whole.state_dict, plain.state_dict)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["loss", "dlis", "craig", "gradmatch", "rho", "glister", "k_center", "infobatch", "rs2"])
def test_regressions_are_downsampled_too(separable: Table, name: str, mode: str) -> None:
    left = separable.columns["left"].astype(np.float64)
    table = Table({"left": left}, targets=2 * left + 1)
    options = {"start": "always"} if name == "dlis" else {}
    spec = sampled(name, mode, epochs=2, batch_size=50, options=options, optimizer={"name": "sgd", "lr": 0.05})
    found = trained(table, spec, task=Task("target"))
    assert np.isfinite(found.losses).all()


def test_gradients_of_the_last_layer_are_those_of_autograd(separable: Table, user_code: str) -> None:
    for name in ("craig", "gradmatch", "glister"):
        spec = sampled(name, "sample_then_batch", gradient="last_layer", epochs=2, model={"name": "mlp", "hidden": [5]})
        assert np.isfinite(trained(separable, spec).losses).all()


def test_a_schedule_changes_the_policy_at_its_triggers() -> None:
    schedule = [{"from_trigger": 2, "policy": "loss", "ratio": 0.25}, {"from_trigger": 5, "policy": "none"}]
    spec = sampled("none", schedule=schedule)
    policies = []
    for trigger in range(7):
        found = spec.at(trigger).downsampling
        now = None if found is None else found.at(0)
        policies.append(None if now is None else now.policy)
    assert policies == [None, None, "loss", "loss", "loss", None, None]
    loss = spec.at(3).downsampling
    assert loss is not None
    assert loss.ratio == 0.25


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"policy": "uniform", "ratio": 0}, "greater than 0"),
        ({"policy": "uniform", "period": 2}, "period is a setting of mode sample_then_batch"),
        ({"policy": "best"}, "policy"),
        ({"policy": "uniform", "colour": 1}, "Extra inputs"),
        (
            {"policy": "uniform", "schedule": [{"policy": "loss", "from_trigger": t} for t in (3, 3)]},
            "in the order of from_trigger",
        ),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        spec_of(downsampling=fields)


def test_options_and_tasks_that_do_not_fit_are_errors_that_name_the_field(separable: Table, user_code: str) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training.downsampling.options: loss has no option 'speed'"):
        trained(separable, sampled("loss", options={"speed": 1}))
    with pytest.raises(ConfigError, match=r"training.downsampling.policy.factory: must return a callable"):
        trained(separable, sampled({"factory": f"{user_code}:no_policy"}))
    with pytest.raises(ConfigError, match=r"training_user_code:Newest refused it: TypeError"):
        trained(separable, sampled({"factory": f"{user_code}:Newest"}, options={"colour": 1}))
    with pytest.raises(TrainingError, match=r"downsampling by .*Newest failed: "):
        trained(separable, sampled({"factory": f"{user_code}:Newest"}, options={"skip": "x"}))
    numbers = Table({"left": separable.columns["left"]}, targets=separable.columns["right"])
    with pytest.raises(ConfigError, match=r"training.downsampling.policy: needs classes; the dataset has a target"):
        trained(numbers, sampled("entropy"), task=Task("target"))
