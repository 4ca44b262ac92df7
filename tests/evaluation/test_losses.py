"""Two classes: what one exponential per sample gives is, to the bit, what the softmax over both columns gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.losses import binary_softmax, sample_losses
from tests.examples import examples

logits = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 88.0, -0.125, 1e10])
outputs = st.integers(0, 40).flatmap(lambda n: arrays(np.float32, (n, 2), elements=logits))


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(outputs=outputs, seed=st.integers(0, 9))
def test_losses_squares_and_confidences_have_the_bits_of_the_softmax(outputs, seed):
    labels = np.random.default_rng(seed).integers(0, 2, len(outputs))
    wide = outputs.astype(np.float64)
    shifted = wide - wide.max(axis=1, initial=-np.inf)[:, None]
    powers = np.exp(shifted)
    total = powers.sum(axis=1)
    losses = np.log(total) - shifted[np.arange(len(labels)), labels]
    found = binary_softmax(outputs)
    np.testing.assert_array_equal(found.losses(labels), losses)
    np.testing.assert_array_equal(found.squares(labels), np.square(powers[:, 1] / total - labels))
    np.testing.assert_array_equal(found.confidences(), 1 / total)
    judged = EvaluationSamples(outputs, labels)
    np.testing.assert_array_equal(judged.losses, losses)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(sample_losses(outputs, labels, "class"), losses.astype(np.float32))


@pytest.mark.parametrize("label", [0, 1, 5])
def test_a_class_beyond_the_two_counts_as_the_last_one_where_it_is_not_asked_for(label):
    judged, known = (EvaluationSamples(np.array([[0.5, 2.0]], np.float32), np.array([each])) for each in (label, min(label, 1)))
    assert judged.losses == known.losses
    assert judged.squares == known.squares
