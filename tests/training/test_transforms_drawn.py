"""Draws of transforms follow from seed, epoch and sample alone: whoever reads it, in whatever company, whenever."""

import importlib
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.keys import keys_of
from modyn_dagster.reproducibility.determinism import generator_snapshot
from modyn_dagster.training import FastPath, build_predictor
from modyn_dagster.training.transforms.chain import Transforms
from tests.examples import examples
from tests.training.table import spec_of
from tests.training.test_streamed import WAYS, Plain, bits, fixed_rows, images, trained
from tests.training.trained import assert_same_bits
from tests.training.trained import trained as trained_on
from tests.training.transforming import CODE, function, numbers, spec
from tests.variants import represented

pytestmark = pytest.mark.usefixtures("user_code")

JITTER = function("jitter")
NOISE: dict[str, Any] = {"factory": f"{CODE}:noise"}
N = 8


def transforms(*listed: dict[str, Any]) -> Transforms:
    return Transforms(spec_of(transforms=list(listed)), "p")


@settings(max_examples=examples(30))
@given(order=st.permutations(range(N)), cut=st.integers(0, N), epoch=st.integers(0, 3), seed=st.integers(0, 2**63 - 1))
@pytest.mark.parametrize("listed", [[JITTER], [NOISE], [JITTER, NOISE]], ids=["rng", "generators", "both"])
def test_a_sample_draws_the_same_in_any_company(
    listed: list[dict[str, Any]], order: list[int], cut: int, epoch: int, seed: int
) -> None:
    keys, inputs = keys_of(5, np.arange(N)), torch.zeros(N, 3)
    passing = transforms(*listed).training(seed, epoch)
    whole = passing({"features": inputs}, keys)["features"]
    for part in (order[:cut], order[cut:]):
        at = np.array(part, dtype=np.int64)
        assert torch.equal(passing({"features": inputs[at]}, keys[at])["features"], whole[at])


def test_seeds_epochs_samples_and_transforms_draw_apart() -> None:
    inputs = {"features": torch.zeros(4, 2)}
    both = transforms(JITTER, JITTER, NOISE)
    found = [
        part
        for seed in (0, 1)
        for epoch in (0, 1)
        for step in both.training(seed, epoch).steps
        for part in step[0](inputs["features"], keys_of(0, np.arange(4)), step[1])
    ]
    assert len({part.numpy().tobytes() for part in found}) == len(found) == 48


def test_in_evaluation_a_sample_always_draws_the_same() -> None:
    model = trained_on(numbers(), spec(NOISE, JITTER))
    predict = build_predictor(model.architecture, model.state_dict, threads=1, source="p")
    assert (predict(numbers().samples) == predict(numbers().samples)).all()
    plain = trained_on(numbers(), spec())
    assert (build_predictor(plain.architecture, model.state_dict, threads=1, source="p")(numbers().samples) != 0).any()


def test_the_generators_of_the_process_go_on_where_they_were() -> None:
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    before = generator_snapshot()
    transforms(NOISE).training(0, 0)({"features": torch.zeros(4, 2)}, keys_of(0, np.arange(4)))
    assert generator_snapshot() == before


@pytest.mark.parametrize("way", [FastPath(), FastPath(cache_bytes=0)])
def test_a_model_draws_what_it_would_have_drawn_without_transforms(way: FastPath) -> None:
    fields: dict[str, Any] = {"model": {"factory": "training_user_code:restless"}, "standardize": True}
    plain, found = (trained_on(numbers(), spec(*each, **fields), fast_path=way) for each in ([], [function("draws_in_vain")]))
    assert_same_bits(found.state_dict, plain.state_dict)


@pytest.mark.parametrize(
    ("transform", "aside"),
    [
        (function("who_draws"), False),
        (function("who_draws", per="batch"), False),
        (function("who_draws", draws=False), True),
        (function("who_is_given"), True),
        (function("who_is_given", per="batch"), True),
    ],
)
def test_only_the_thread_that_trains_touches_the_generators(transform: dict[str, Any], aside: bool) -> None:
    """The first samples are tried by that thread, whatever the transform."""
    threads: set[str] = importlib.import_module(CODE).THREADS
    threads.clear()
    trained_on(numbers(), spec(transform, batch_size=10))
    assert len(threads - {threading.current_thread().name}) == aside


BOTH_KINDS = [
    [JITTER],
    [JITTER | {"per": "batch"}, NOISE],
    [NOISE, JITTER],
]


@pytest.mark.long
@represented(
    "listed",
    dict(zip(["rng", "rng_per_batch_then_generators", "generators_then_rng"], BOTH_KINDS, strict=True)),
    "laws-training",
    "rng_per_batch_then_generators",
)
def test_every_way_of_reading_gives_the_same_bits(listed: list[dict[str, Any]], tmp_path: Path) -> None:
    reader, fields = fixed_rows(tmp_path)
    described = spec_of(
        model={"name": "mlp", "hidden": [8], "dropout": 0.1}, epochs=2, batch_size=37, transforms=listed, **fields
    )
    first, *others = (trained(reader, described, way) for way in (*WAYS, FastPath(threads=3), FastPath(prefetch=0)))
    for other in (*others, trained(Plain(reader.read), described, FastPath())):
        assert bits(other) == bits(first)
        assert other.architecture == first.architecture


def test_augmented_images_too(tmp_path: Path) -> None:
    reader, fields = images(tmp_path)
    listed = [function("corner"), NOISE | {"when": "train"}]
    fields["parser"]["images"]["size"] = [6, 6]
    described = spec_of(transforms=listed, batch_size=50, **fields)
    first, *others = (trained(reader, described, way) for way in (WAYS[0], WAYS[3]))
    assert first.architecture["seen"]["shape"] == [3, 4, 4]
    assert all(bits(other) == bits(first) for other in others)
