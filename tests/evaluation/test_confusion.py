"""Confusion: counts of true and predicted classes, equal to counting one by one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation import score
from modyn_dagster.evaluation.composite.confusion import Confusion

#: True class, -1 for none, and outputs of three classes with ties.
SAMPLES = st.lists(st.tuples(st.integers(-1, 4), st.tuples(*[st.integers(-2, 2)] * 3)), max_size=40)


def confusion_of(samples: list[tuple[int, tuple[int, ...]]]) -> Confusion:
    truth = np.array([label for label, _ in samples], np.int64)
    return Confusion.of(np.array([outputs for _, outputs in samples], np.float32).reshape(-1, 3), truth)


def pairs(confusion: Confusion) -> dict[tuple[int, int], int]:
    columns = (confusion.truth, confusion.predicted, confusion.counts)
    return {(truth, predicted): n for truth, predicted, n in zip(*(column.tolist() for column in columns), strict=True)}


@given(samples=SAMPLES, cut=st.integers(0, 40))
def test_every_labelled_sample_is_counted_once_and_parts_add_up(samples: list[tuple[int, tuple[int, ...]]], cut: int) -> None:
    found = confusion_of(samples)
    assert pairs(found) == Counter((label, int(np.argmax(outputs))) for label, outputs in samples if label >= 0)
    assert list(pairs(found)) == sorted(pairs(found))
    assert pairs(Confusion.total([confusion_of(samples[:cut]), confusion_of(samples[cut:])])) == pairs(found)


@given(samples=SAMPLES.filter(lambda samples: any(label >= 0 for label, _ in samples)))
def test_the_diagonal_is_the_accuracy(samples: list[tuple[int, tuple[int, ...]]]) -> None:
    found = confusion_of(samples)
    labelled = [(label, outputs) for label, outputs in samples if label >= 0]
    outputs, truth = np.array([o for _, o in labelled], np.float32), np.array([label for label, _ in labelled])
    right = found.counts[found.truth == found.predicted].sum()
    assert right / found.n_samples == pytest.approx(score("accuracy", outputs, truth).value)


def test_outputs_that_are_no_numbers_are_left_out_and_nothing_is_a_confusion_too() -> None:
    outputs = np.array([[1, 0], [np.nan, 0], [0, np.inf]], np.float32)
    assert pairs(Confusion.of(outputs, np.array([0, 0, 1]))) == {(0, 0): 1}
    assert Confusion.total([]).classes().tolist() == []
