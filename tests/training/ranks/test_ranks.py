"""Two ranks that train one model: close to what one process makes of it, and the same bits every time."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from modyn_dagster.errors import ConfigError
from tests.training.ranks.together import Case, Ended, run, together
from tests.training.resumable import resumable
from tests.training.table import spec_of

pytestmark = pytest.mark.process

_MLP: Final = {"name": "mlp", "hidden": [8]}
_CHOSEN: Final = {"mode": "batch_then_sample", "ratio": 0.5}
_CODE: Final = "tests.training.ranks_user_code"


def close_case(n: int = 150, cache_bytes: int = 1 << 20, **fields: Any) -> Case:
    """A training of 20 steps or more."""
    common = {"model": _MLP, "epochs": 5, "batch_size": 32, "ranks": 2}
    return Case(spec_of(**common | fields), n=n, cache_bytes=cache_bytes)


def in_three(case: Case) -> Case:
    """The same training in three ranks."""
    return replace(case, spec=case.spec.model_copy(update={"ranks": 3}))


def policy(name: str) -> dict[str, Any]:
    return {"downsampling": _CHOSEN | {"policy": {"factory": f"{_CODE}:{name}"}}}


_SGD: Final = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
_DOUBLE: Final[dict[str, Any]] = {"precision": "64-true"}
_DROPOUT: Final[dict[str, Any]] = {"model": _MLP | {"dropout": 0.4}}
_INSIDE: Final[dict[str, Any]] = {"model": {"factory": f"{_CODE}:Attentive"}}
_VIEWS: Final = [{"function": f"{_CODE}:jitter", "when": "train"}]
#: Trainings whose parameters depend on the number of ranks by rounding alone.
CLOSE: Final[dict[str, Case]] = {
    "sgd_double": close_case(optimizer=_SGD, **_DOUBLE),
    "sgd_single": close_case(optimizer=_SGD),
    "adam_double": close_case(optimizer={"name": "adam", "lr": 0.01}, **_DOUBLE),
    "adam_single": close_case(optimizer={"name": "adam", "lr": 0.01}),
    "a_last_batch_of_one_sample": close_case(n=129, **_DOUBLE),
    "accumulated_and_clipped": close_case(accumulate=3, clip={"norm": 0.05}, ema={"decay": 0.9}, **_DOUBLE),
    "clipped_by_value": close_case(clip={"value": 0.01}, **_DOUBLE),
    "scheduled_and_stopped": close_case(
        optimizer=_SGD | {"scheduler": {"name": "cosine"}}, early_stopping={"patience": 9}, **_DOUBLE
    ),
    "streamed_in_blocks": close_case(cache_bytes=0, shuffle="blocks", block_size=40, **_DOUBLE),
    "contrastive": close_case(loss={"factory": f"{_CODE}:contrastive_loss"}, **_DOUBLE),
    "partly_used": close_case(model={"factory": f"{_CODE}:PartlyUsed"}, optimizer={"weight_decay": 0.1}, **_DOUBLE),
    "a_rank_without_samples": close_case(**policy("Front"), **_DOUBLE),
    "a_rank_whose_weights_are_zero": close_case(**policy("ZeroBehind"), **_DOUBLE),
    "estimates_of_a_forced_choice": close_case(**policy("Scattered"), **_DOUBLE),
    "batch_norm": close_case(model={"factory": f"{_CODE}:batch_normed"}, optimizer=_SGD, **_DOUBLE),
    "frozen_batch_norm": close_case(
        model={"factory": f"{_CODE}:batch_normed"}, pretrained={"freeze": ["0.*", "1.*"]}, optimizer=_SGD, **_DOUBLE
    ),
    "adapters": close_case(pretrained={"lora": {"rank": 2, "targets": ["0"]}}, optimizer=_SGD, **_DOUBLE),
    "batch_norm_single": close_case(model={"factory": f"{_CODE}:batch_normed"}, optimizer=_SGD),
    "batch_norm_and_uneven_shares": close_case(
        n=131, model={"factory": f"{_CODE}:batch_normed"}, optimizer=_SGD, early_stopping={}, **_DOUBLE
    ),
    "batch_norm_and_a_rank_without_samples": close_case(
        model={"factory": f"{_CODE}:batch_normed"}, optimizer=_SGD, **policy("Front"), **_DOUBLE
    ),
    "a_set_chosen_before_the_epoch": close_case(
        downsampling={"policy": "rs2", "mode": "sample_then_batch", "ratio": 0.8}, **_DOUBLE
    ),
    "dropout": close_case(optimizer=_SGD, **_DROPOUT, **_DOUBLE),
    "dropout_single": close_case(optimizer={"name": "adam", "lr": 0.01}, **_DROPOUT),
    "dropout_and_uneven_shares": close_case(n=131, accumulate=2, epochs=9, early_stopping={"patience": 9}, **_DROPOUT, **_DOUBLE),
    "dropout_and_a_rank_without_samples": close_case(**policy("Front"), **_DROPOUT, **_DOUBLE),
    "dropout_and_a_choice_back_to_front": close_case(**policy("Scattered"), **_DROPOUT, **_DOUBLE),
    "dropout_of_channels": close_case(model={"factory": f"{_CODE}:channels"}, optimizer=_SGD, **_DOUBLE),
    "dropout_inside": close_case(**_INSIDE, optimizer=_SGD, **policy("Scattered"), **_DOUBLE),
    "dropout_inside_single": close_case(**_INSIDE, optimizer=_SGD),
    "dropout_inside_and_uneven_shares": close_case(n=129, **_INSIDE, optimizer=_SGD, accumulate=2, epochs=9, **_DOUBLE),
    "dropout_inside_and_a_rank_without_samples": close_case(**_INSIDE, optimizer=_SGD, **policy("Front"), **_DOUBLE),
    "dropout_of_distilbert": close_case(model={"factory": f"{_CODE}:Worded"}, optimizer=_SGD, **_DOUBLE),
    "transforms_that_draw": close_case(transforms=[{"function": f"{_CODE}:jitter", "when": "train"}], **_DOUBLE),
}
CLOSE["reconstruction"] = close_case(loss={"name": "reconstruction"}, optimizer=_SGD, **_DOUBLE)
CLOSE["nt_xent"] = close_case(
    n=131, loss={"name": "nt_xent", "dimension": 4}, transforms=_VIEWS, optimizer=_SGD, early_stopping={}, **_DOUBLE
)
CLOSE["nt_xent_and_batch_norm"] = close_case(
    loss={"name": "nt_xent", "dimension": 4},
    transforms=_VIEWS,
    model={"factory": f"{_CODE}:batch_normed"},
    optimizer=_SGD,
    **_DOUBLE,
)
#: Trainings in three ranks.
_IN_THREE: Final = (
    "nt_xent",
    "dropout",
    "dropout_and_uneven_shares",
    "dropout_and_a_rank_without_samples",
    "dropout_inside",
    "dropout_inside_and_uneven_shares",
)
#: Trainings that every run of the tests makes with divided weights.
DIVIDED: Final = ("adam_double", "accumulated_and_clipped", "dropout_and_a_choice_back_to_front")
#: Policies that choose the highest scores.
RANKING: Final = ("least_confidence", "margin", "entropy", "rho", "el2n", "grand", "forgetting")
#: Trainings whose scores do not depend on the number of ranks, and are often equal; each in two ranks and in three.
TIED: Final[dict[str, Case]] = {
    name: close_case(
        model={"factory": "tests.training.training_user_code:identity"},
        standardize=False,
        transforms=[{"function": f"{_CODE}:rounded"}],
        optimizer={"name": "sgd", "lr": 1e-42},
        downsampling=_CHOSEN | {"policy": name},
    )
    for name in (*RANKING, "loss", "uniform", "infobatch")
}
TIED.update({f"{name}_in_three": in_three(case) for name, case in list(TIED.items())})
#: Resumable trainings, of which one part of the soak suite runs all.
FEW: Final = ("average_and_clipping", "accumulation", "early_stopping", "dlis", "rho", "restless", "counting_loss")


def resumed_cases(name: str, folder: Path, at: int, whole: Case) -> list[Case]:
    """A training broken off at a batch, and the next attempt."""
    file = folder / f"{name}.{at}"
    return [Case(whole.spec, checkpoint=file, stop=at), Case(whole.spec, checkpoint=file)]


def refused_cases() -> dict[str, tuple[Case, str]]:
    """Trainings that are refused before the first step, or at it."""
    named: dict[str, tuple[dict[str, Any], str]] = {
        "own_statistics": (
            {"model": {"factory": f"{_CODE}:unfollowed"}},
            r"training\.ranks: the batch norm 1 of the model keeps no",
        ),
        "compiled": (
            {"model": {"factory": f"{_CODE}:batch_normed"}, "compile": {"backend": "eager"}},
            r"training\.compile: a model with batch norm cannot be compiled with ranks",
        ),
        "counting": (
            {"model": {"factory": f"{_CODE}:Counting"}},
            r"training\.ranks: the model's forward pass changes its buffers",
        ),
        "drawing": ({"loss": {"factory": f"{_CODE}:DrawingLoss"}}, r"training\.loss: draws random numbers or counts calls"),
        "crosswise": (
            {"model": {"factory": f"{_CODE}:Crosswise"}},
            r"training\.ranks: the dropout dropout gets inputs of shape \(2, 16\) for 16 samples .* first axis must count",
        ),
        "repeated": (
            {"model": {"factory": f"{_CODE}:Repeated"}},
            r"training\.ranks: the dropout layers\.1 draws outside of the forward pass",
        ),
        "attention_repeated": (
            {"model": {"factory": f"{_CODE}:AttentiveAgain"}},
            r"training\.ranks: the dropout of `multi_head_attention_forward` draws in a part .* that is repeated",
        ),
        "sparse": (
            {"model": {"factory": f"{_CODE}:Sparse"}, "optimizer": {"name": "sgd"}},
            r"training\.ranks: the model has sparse gradients",
        ),
    }
    return {name: (close_case(**fields), message) for name, (fields, message) in named.items()}


#: What `make test` runs; a part of the soak suite runs the rest.
QUICK: Final = frozenset(
    {
        ("close", "adam_double"),
        ("close", "a_rank_without_samples"),
        ("close", "dropout_and_a_choice_back_to_front"),
        ("close", "dropout_inside"),
        ("close", "nt_xent"),
        *(("divided", name) for name in DIVIDED),
        ("tied", "margin"),
        ("resumed", "average_and_clipping"),
    }
)


def each(kind: str, names: Iterable[str]) -> list[Any]:
    """Names as parameters of a test, most of them for the soak suite."""
    late = pytest.mark.soak("distributed")
    return [pytest.param(name, marks=[] if (kind, name) in QUICK else [late]) for name in names]


class Results:
    """Ends of all cases on both ranks, by kind and name; those of `make test` are run together, and so are the others."""

    def __init__(self, folder: Path) -> None:
        wholes = {name: Case(resumable(name, ranks=2)) for name in FEW}
        self._cases: dict[tuple[str, str], list[Case]] = {
            **{("close", name): [case, case] for name, case in CLOSE.items()},
            **{("divided", name): [CLOSE[name].divided()] for name in DIVIDED},
            **{("tied", name): [case] for name, case in TIED.items()},
            **{("refused", name): [case] for name, (case, _) in refused_cases().items()},
            **{("resumed", name): [case, *resumed_cases(name, folder, 5, case)] for name, case in wholes.items()},
        }
        self._ends: dict[tuple[str, str], list[list[Ended]]] = {}

    def of(self, kind: str, name: str) -> list[list[Ended]]:
        place = (kind, name)
        if place not in self._ends:
            ranks = self._cases[place][0].spec.ranks
            due = {other: cases for other, cases in self._cases.items() if self._is_run_with(other, place, ranks)}
            ends = iter(together([case for cases in due.values() for case in cases], ranks))
            self._ends |= {other: [next(ends) for _ in cases] for other, cases in due.items()}
        return self._ends[place]

    def _is_run_with(self, other: tuple[str, str], place: tuple[str, str], ranks: int) -> bool:
        return (other in QUICK) == (place in QUICK) and self._cases[other][0].spec.ranks == ranks


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        yield Results(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(autouse=True)
def own_code(user_code: str) -> None:
    """Some of the trainings name it."""


def distance(one: Ended, other: Ended) -> float:
    """Largest relative difference of two models' parameters."""
    return float(((one.weights - other.weights).abs() / other.weights.abs().clamp(min=1e-3)).max())


@pytest.mark.parametrize("name", each("close", CLOSE))
def test_two_ranks_differ_from_one_by_rounding_alone(results: Results, name: str) -> None:
    case, alone = CLOSE[name], run(CLOSE[name].alone())
    (first, other), again = results.of("close", name)
    assert first.model is not None, first.error
    assert alone.model is not None
    assert first.model.n_steps == alone.model.n_steps >= (10 if case.spec.accumulate > 1 else 20)
    assert distance(first, alone) <= (1e-9 if case.spec.precision == "64-true" else 1e-4)
    assert first.model.losses == pytest.approx(alone.model.losses, rel=1e-6)
    assert first.bits == other.bits == again[0].bits == again[1].bits
    assert first.model.surroundings["ranks"] == 2
    assert "ranks" not in alone.model.surroundings


@pytest.mark.parametrize("name", each("tied", TIED))
def test_equal_scores_choose_the_same_keys_for_any_number_of_ranks(results: Results, name: str) -> None:
    (first, *others), *_ = results.of("tied", name)
    alone = run(TIED[name].alone())
    assert [sorted(keys) for keys in first.keys] == [sorted(keys) for keys in alone.keys] != []
    assert {(other.keys, other.bits) for other in others} == {(first.keys, first.bits)}


@pytest.mark.parametrize("name", each("resumed", FEW))
def test_an_attempt_that_was_broken_off_goes_on_to_the_same_bits(results: Results, name: str) -> None:
    whole, broken, resumed = results.of("resumed", name)
    assert all(ended.model is None and ended.error is None for ended in broken)
    assert {ended.bits for ended in whole} == {ended.bits for ended in resumed} == {whole[0].bits}
    assert resumed[0].keys == whole[0].keys[-len(resumed[0].keys) :]
    assert len(resumed[0].keys) < len(whole[0].keys)


@pytest.mark.parametrize("name", each("refused", refused_cases()))
def test_a_training_that_ranks_cannot_share_is_refused_with_field_and_reason(results: Results, name: str) -> None:
    (ends,) = results.of("refused", name)
    for ended in ends:
        with pytest.raises(Exception, match=refused_cases()[name][1]):
            raise ended.error or AssertionError("it was not refused")


@pytest.mark.parametrize("name", each("divided", DIVIDED))
def test_two_ranks_with_divided_weights_differ_from_one_by_rounding_alone(results: Results, name: str) -> None:
    alone = run(CLOSE[name].alone())
    ((first, other),) = results.of("divided", name)
    assert first.model is not None, first.error
    assert distance(first, alone) <= 1e-9
    assert first.bits == other.bits


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("name", _IN_THREE)
def test_three_ranks_with_dropout_differ_from_one_by_rounding_alone(name: str) -> None:
    (ends,) = together([in_three(CLOSE[name])], 3)
    assert distance(ends[0], run(CLOSE[name].alone())) <= 1e-9
    assert {ended.bits for ended in ends} == {ends[0].bits}


def test_ranks_without_a_group_are_refused() -> None:
    ended = run(close_case())
    assert isinstance(ended.error, ConfigError)
    assert "training.ranks: needs as many processes: call train_in_ranks" in str(ended.error)
