"""Gamma-exponential mixture: against its integral, and as a boundary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from modyn_dagster.evaluation.paired.mixture_boundary import boundary, log_mixture

VARIANCES = st.floats(0, 1e7)
ALPHAS = st.floats(1e-8, 0.5)


def integral(total: float, variance: float, rho: float) -> float:
    """Integrate the supermartingales over their parameter numerically."""

    def density(l: float) -> float:  # noqa: E741 - the letter of the formula
        return float((1 - l) ** (rho - 1) * np.exp(-rho * (1 - l)))

    def weighted(l: float) -> float:  # noqa: E741
        return float(density(l) * np.exp(l * total + (np.log1p(-l) + l) * variance))

    options = {"epsabs": 0, "epsrel": 1e-12, "limit": 500}
    return float(quad(weighted, 0, 1, **options)[0] / quad(density, 0, 1, **options)[0])


@pytest.mark.parametrize("rho", [2.0, 10.0, 40.0])
@pytest.mark.parametrize(("total", "variance"), [(0, 1), (3, 0), (5, 3), (20, 64), (60, 200), (300, 6400)])
def test_the_closed_form_is_the_integral(total, variance, rho):
    assert float(log_mixture(total, variance, rho)) == pytest.approx(np.log(integral(total, variance, rho)), abs=1e-9)


@given(VARIANCES, ALPHAS)
def test_the_boundary_is_the_smallest_total_that_the_mixture_rejects(variance, alpha):
    edge = float(boundary(variance, alpha))
    assert float(log_mixture(edge, variance)) >= -np.log(alpha) - 1e-9
    assert float(log_mixture(edge * (1 - 1e-6), variance)) < -np.log(alpha)


@given(st.lists(VARIANCES, min_size=2, max_size=6), ALPHAS, ALPHAS)
def test_the_boundary_grows_with_the_variance_and_with_the_confidence_and_each_number_stands_alone(variances, one, other):
    variances = sorted(variances)
    edges = boundary(variances, one)
    assert (np.diff(edges) >= -1e-6).all()
    assert edges.tolist() == pytest.approx([float(boundary(v, one)) for v in variances], rel=1e-9)
    assert ((boundary(variances, min(one, other)) + 1e-6) >= boundary(variances, max(one, other))).all()


@given(VARIANCES)
def test_no_evidence_is_found_in_a_total_that_is_not_positive(variance):
    assert float(log_mixture(0.0, variance)) <= 1e-6
    assert float(log_mixture(-5.0, variance)) == float(log_mixture(0.0, variance))
