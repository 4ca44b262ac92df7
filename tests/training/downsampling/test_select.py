"""The door to all policies: names, budgets, weights, errors."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.training.downsampling import POLICIES, select
from modyn_dagster.training.downsampling.registry import extends
from tests.training.downsampling.pools import everything

FIRST = "uniform loss dlis least_confidence margin entropy rs2 rs2_without_replacement rho craig gradmatch glister k_center"
NAMES = f"{FIRST} herding facility_location graph_cut log_det infobatch el2n grand forgetting".split()
SIZED = [name for name in NAMES if name != "infobatch"]
DIFFERENT = [name for name in NAMES if name not in ("loss", "dlis")]
WEIGHTED = {"uniform", "loss", "dlis", "rs2", "rs2_without_replacement", "craig", "gradmatch", "infobatch"}
TOP = [name for name in NAMES if name not in WEIGHTED]


def test_there_are_these_policies() -> None:
    assert list(POLICIES) == NAMES


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("k", [1, 4, 13, 40])
def test_exactly_k_are_chosen(name: str, k: int) -> None:
    indices, weights = select(name, k=k, seed=3, **everything(40))
    assert (indices.shape, indices.dtype, weights.shape, weights.dtype) == ((k,), torch.int64, (k,), torch.float32)
    assert 0 <= int(indices.min()) <= int(indices.max()) < 40
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("seed", range(5))
def test_without_replacement_no_sample_repeats(name: str, seed: int) -> None:
    indices, _ = select(name, k=17, seed=seed, **everything(40, seed=seed))
    assert len(set(indices.tolist())) == len(indices)


@pytest.mark.parametrize("name", TOP)
def test_policies_that_rank_have_weights_1(name: str) -> None:
    assert select(name, k=9, seed=0, **everything(40))[1].tolist() == [1.0] * 9


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same(name: str) -> None:
    one, other = (select(name, k=9, seed=7, **everything(40)) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_taken_as_tensors_are_and_are_left_alone(name: str) -> None:
    tensors = everything(20)
    arrays = {field: tensor.numpy().copy() for field, tensor in tensors.items()}
    one, other = select(name, k=5, seed=1, **tensors), select(name, k=5, seed=1, **arrays)
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    for field, array in arrays.items():
        np.testing.assert_array_equal(array, tensors[field].numpy())


@pytest.mark.parametrize("name", ["uniform", "rs2", "rs2_without_replacement"])
def test_where_no_tensor_is_needed_n_is_enough(name: str) -> None:
    indices, weights = select(name, n=12, k=3, seed=0)
    assert len(indices) == 3
    assert weights.tolist() == [4.0] * 3


def test_weights_have_the_precision_of_the_inputs() -> None:
    assert select("loss", losses=torch.rand(9, dtype=torch.float64), k=2, seed=0)[1].dtype == torch.float64
    assert select("loss", losses=torch.rand(9).half(), k=2, seed=0)[1].dtype == torch.float32


@pytest.mark.parametrize("name", [name for name in SIZED if not name.startswith(("rs2", "facility", "graph", "log"))])
def test_balanced_variants_give_every_class_its_share(name: str) -> None:
    inputs = everything(40)
    inputs["labels"] = torch.tensor([0] * 30 + [1] * 6 + [2] * 2 + [3] * 2)
    indices, _ = select(name, k=12, seed=0, balance="equal", **inputs)
    assert torch.bincount(inputs["labels"][indices], minlength=4).tolist() == [4, 4, 2, 2]


@pytest.mark.parametrize("balance", ["none", "proportional", "equal"])
@pytest.mark.parametrize("name", [name for name in NAMES if extends(name)])
def test_what_is_selected_already_is_not_chosen_again_even_where_it_is_a_whole_class(name: str, balance: str) -> None:
    inputs = everything(40)
    members = torch.nonzero(inputs["labels"] == 1).flatten()
    indices, _ = select(name, k=12, seed=0, selected=torch.cat([members, torch.tensor([0, 2])]), balance=balance, **inputs)
    assert len(set(indices.tolist())) == 12
    assert not set(indices.tolist()) & {*members.tolist(), 0, 2}
    if balance != "none":
        assert torch.bincount(inputs["labels"][indices], minlength=4).tolist() == [4, 0, 4, 4]


@pytest.mark.parametrize("k", [0, 1, 400, None])
def test_infobatch_ignores_k_also_class_by_class(k: Any) -> None:
    inputs = everything(40)
    indices, weights = select("infobatch", k=k, seed=0, balance="equal", **inputs)
    chosen = dict(zip(indices.tolist(), weights.tolist()))
    for label in range(4):
        members = torch.nonzero(inputs["labels"] == label).flatten()
        low = inputs["losses"][members] < inputs["losses"][members].mean()
        assert all(chosen.get(int(member)) == 1 for member in members[~low])
        assert all(chosen.get(int(member), 2) == 2 for member in members[low])


NEEDS: list[tuple[str, str]] = [
    ("loss", "losses="),
    ("dlis", "logits="),
    ("least_confidence", "logits="),
    ("margin", "logits="),
    ("entropy", "logits="),
    ("rho", "irreducible_losses="),
    ("craig", "gradients="),
    ("gradmatch", "gradients="),
    ("glister", "validation_gradient="),
    ("k_center", "embeddings="),
    ("herding", "embeddings="),
    ("facility_location", "embeddings="),
    ("graph_cut", "embeddings="),
    ("log_det", "embeddings="),
    ("infobatch", "losses="),
    ("el2n", "logits="),
    ("grand", "gradients="),
    ("forgetting", "history="),
]


@pytest.mark.parametrize(("name", "missing"), NEEDS)
def test_a_missing_tensor_is_an_error_that_says_what_to_give(name: str, missing: str) -> None:
    given: dict[str, Any] = {"rho": {"losses": torch.rand(9)}, "glister": {"gradients": torch.rand(9, 2)}}.get(name, {"n": 9})
    with pytest.raises(ValueError, match=f"{name} needs .*{missing}"):
        select(name, k=2, seed=0, **given)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("unifrom", {}, "no downsampling policy 'unifrom'; known: uniform, loss"),
        ("uniform", {"colour": 1}, "uniform has no option 'colour'; its options: balance"),
        ("dlis", {"start": "soon"}, "start must be auto or always, not 'soon'"),
        ("uniform", {"k": 0}, "k must be a whole number from 1 to 40, not 0"),
        ("uniform", {"k": 41}, "k must be a whole number from 1 to 40, not 41"),
        ("uniform", {"k": 2.5}, "k must be a whole number"),
        ("uniform", {"seed": -1}, "seed must be a whole number of at least 0"),
        ("rs2", {"epoch": -1}, "epoch must be a whole number of at least 0"),
        ("uniform", {"n": 39}, "inputs differ in the number of samples: .*n 39"),
        ("uniform", {"n": 40.5}, "n must be a whole number, not 40.5"),
        ("uniform", {"selected": [1]}, "uniform does not take selected=; these do: glister, k_center"),
        ("k_center", {"selected": [1.7]}, "selected= must be different indices from 0 to 39"),
        ("k_center", {"selected": [1, 1]}, "selected= must be different indices from 0 to 39"),
        ("k_center", {"selected": [40]}, "selected= must be different indices from 0 to 39"),
        ("facility_location", {"metric": "manhattan"}, "metric must be one of euclidean, cosine"),
        ("facility_location", {"greedy": "eager"}, "greedy must be one of naive, lazy, stochastic"),
        ("facility_location", {"similarities": torch.full((40, 40), torch.nan)}, "similarities hold NaN or infinity"),
        ("forgetting", {"history": torch.zeros(0, 40)}, r"history= must be \[epochs, n\] of at least one epoch"),
        ("log_det", {"metric": "euclidean"}, "log_det needs a metric that is a kernel"),
        ("graph_cut", {"metric": "dot"}, "graph_cut needs similarities of at least 0"),
        ("infobatch", {"ratio": 1.0}, "ratio must be at least 0 and below 1"),
        ("loss", {"losses": torch.full((40,), -1.0)}, "the score of sample 0 is -1.0, scores must be finite and at least 0"),
        ("loss", {"losses": torch.full((40,), torch.nan)}, "the score of sample 0 is nan"),
        ("infobatch", {"losses": torch.full((40,), torch.nan)}, "infobatch: the score of sample 0 is NaN"),
        ("infobatch", {"losses": torch.full((40,), torch.inf)}, "infobatch: the score of sample 0 is inf"),
        ("dlis", {"logits": torch.full((40, 4), torch.nan)}, "dlis: the score of sample 0 is NaN"),
        ("dlis", {"k": 41}, "k must be a whole number from 1 to 40, not 41"),
        ("entropy", {"logits": torch.full((40, 4), torch.nan)}, "entropy: the score of sample 0 is NaN"),
        ("entropy", {"logits": torch.zeros(40, 1), "labels": None}, "at least two classes"),
        ("dlis", {"labels": torch.full((40,), 4)}, "labels= must be from 0 to 3"),
        ("craig", {"gradients": torch.full((40, 2), torch.inf)}, "NaN or infinity"),
        ("loss", {"losses": torch.rand(40, 2)}, r"losses= must be float\[n\], found shape \(40, 2\)"),
        ("uniform", {"balance": "equal", "k": 3}, "balance needs a sample per class: k is 3, there are 4 classes"),
        ("uniform", {"balance": "fair"}, "balance must be one of none, proportional, equal"),
    ],
)
def test_bad_input_is_a_value_error_that_names_it(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        select(name, **{"k": 5, "seed": 0, **everything(40), **options})


def test_every_policy_is_a_frozen_dataclass_that_says_what_it_needs() -> None:
    for kind in POLICIES.values():
        assert dataclasses.fields(kind) is not None
        assert kind.needs <= {
            "logits",
            "losses",
            "gradients",
            "embeddings",
            "validation_gradient",
            "irreducible_losses",
            "history",
        }


@pytest.mark.parametrize("name", ["least_confidence", "margin", "entropy", "rho", "el2n", "grand", "forgetting"])
@given(seed=st.integers(0, 2**32), n=st.integers(2, 30), kinds=st.integers(1, 3))
def test_equal_scores_are_ordered_by_key_whatever_the_order_of_the_pool(name: str, seed: int, n: int, kinds: int) -> None:
    rng = np.random.default_rng(seed)
    k, order, copies = int(rng.integers(1, n + 1)), rng.permutation(n), np.sort(rng.integers(0, kinds, n))
    keys = rng.permutation(np.unique(rng.integers(0, 2**64, 4 * n, dtype=np.uint64)))[:n]
    few = {field: tensor for field, tensor in everything(kinds).items() if field != "validation_gradient"}
    few["labels"] = torch.zeros(kinds, dtype=torch.int64)
    pool = copied(few, copies)
    one, _ = select(name, k=k, seed=seed, keys=keys, **pool)
    other, _ = select(name, k=k, seed=seed, keys=keys[order], **copied(pool, order))
    assert keys[one.numpy()].tolist() == keys[order][other.numpy()].tolist()
    # By brute force: whoever is better comes first, and of equals the one that comes first in the order of all equals.
    whole, _ = select(name, k=n, seed=seed, keys=keys, **pool)
    assert whole[:k].tolist() == one.tolist()
    equals, _ = select(name, k=n, seed=seed, keys=keys, **copied(few, np.zeros(n, np.int64)))
    place = {key: i for i, key in enumerate(equals.tolist())}
    for kind in range(kinds):
        ranked = [place[i] for i in whole.tolist() if copies[i] == kind]
        assert ranked == sorted(ranked)


def copied(pool: dict[str, torch.Tensor], places: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
    """The samples at some places of a pool, which may repeat."""
    at = torch.from_numpy(places)
    return {field: tensor.index_select(1 if field == "history" else 0, at) for field, tensor in pool.items()}


def test_the_order_of_equal_scores_differs_by_seed() -> None:
    equal = {"logits": torch.zeros(20, 2)}
    keys = np.arange(20, dtype=np.uint64)
    orders = {tuple(select("margin", k=20, seed=seed, keys=keys, **equal)[0].tolist()) for seed in range(20)}
    assert len(orders) == 20


@pytest.mark.parametrize("keys", [[1, 2], [1.0, 2.0, 3.0], [[1], [2], [3]]], ids=["few", "fractions", "columns"])
def test_keys_that_do_not_name_the_samples_are_refused(keys: Any) -> None:
    with pytest.raises(ValueError, match=r"keys= must be uint64\[n\] with a key for each of 3 samples, found"):
        select("margin", logits=torch.zeros(3, 2), keys=keys, k=1, seed=0)
