"""Length of a training: its epochs, or less where a budget is spent before."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.training.inputs.batches import batch_sizes
from modyn_dagster.training.loop.schedulers import length_of
from tests.examples import examples
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained


@given(
    n=st.integers(1, 200),
    batch_size=st.integers(1, 60),
    epochs=st.integers(1, 4),
    accumulate=st.integers(1, 5),
    max_steps=st.none() | st.integers(1, 30),
    max_samples=st.none() | st.integers(60, 400),
)
@settings(max_examples=examples(200), deadline=None)
def test_budgets_by_brute_force(
    n: int, batch_size: int, epochs: int, accumulate: int, max_steps: int | None, max_samples: int | None
) -> None:
    budgets = {"max_steps": max_steps, "max_samples": max_samples}
    spec = spec_of(batch_size=batch_size, epochs=epochs, accumulate=accumulate, **budgets)
    sizes = batch_sizes(n, spec)
    batches, steps, samples, begun, over = 0, 0, 0, 0, False
    for _ in range(epochs):
        before = batches
        for first in range(0, len(sizes), accumulate):
            taken = 0
            for size in sizes[first : first + accumulate]:
                over = over or steps == max_steps or (max_samples is not None and samples + size > max_samples)
                if not over:
                    samples, taken = samples + size, taken + 1
            batches, steps = batches + taken, steps + bool(taken)
        begun += batches > before
    found = length_of(sizes, spec)
    assert (found.n_batches, found.n_steps, found.n_epochs) == (batches, steps, begun)


@pytest.mark.parametrize(
    ("fields", "n_steps", "samples"),
    [
        ({"max_steps": 4}, 4, [200]),
        ({"max_steps": 6}, 6, [300]),
        ({"max_steps": 8}, 8, [300, 100]),
        ({"max_samples": 449}, 8, [300, 100]),
        ({"max_steps": 3, "accumulate": 4}, 3, [300, 200]),
        ({"max_samples": 600}, 12, [300, 300]),
    ],
)
def test_a_budget_ends_the_training_when_it_is_spent(
    separable: Table, fields: dict[str, Any], n_steps: int, samples: list[int]
) -> None:
    found = trained(separable, spec_of(batch_size=50, epochs=2, **fields))
    assert found.n_steps == n_steps
    assert [epoch["n_samples"] for epoch in found.epochs] == samples
    assert len(found.losses) == len(samples)


def test_what_a_budget_cuts_off_is_the_beginning_of_the_longer_training(separable: Table) -> None:
    """With no schedule that would know of the end."""
    one = trained(separable, spec_of(batch_size=50, epochs=1))
    other = trained(separable, spec_of(batch_size=50, epochs=7, max_steps=6))
    assert_same_bits(one.state_dict, other.state_dict)
