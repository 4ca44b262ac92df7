"""Specs of drift measurements: windows, features and metrics."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from modyn_dagster.spec.base import Duration, ImportPath, Spec
from modyn_dagster.spec.learning.device import Device


class AmountWindows(Spec):
    """Windows that hold so many samples at most."""

    by: Literal["amount"]
    reference: PositiveInt
    current: PositiveInt
    overlap: bool = Field(False, description="Whether the current window may reach back before the last trigger.")


class TimeWindows(Spec):
    """Windows that reach back so far in sample time."""

    by: Literal["time"]
    reference: Duration
    current: Duration
    overlap: bool = Field(False, description="Whether the current window may reach back before the last trigger.")


WindowsSpec = Annotated[AmountWindows | TimeWindows, Field(discriminator="by")]


class FeaturesSpec(Spec):
    """Features of samples that are compared."""

    of: Literal["columns", "embeddings", "outputs"] = Field(
        "embeddings",
        description="The columns the model is trained on, the newest model's embeddings, or its outputs (softmax for classes).",
    )
    layer: str | None = Field(
        None, description="Name of the module whose output is the embedding; default: what the last layer gets."
    )
    pca: PositiveInt | None = Field(
        None, description="Reduce to so many principal components, fitted on the reference window; for p-values on both."
    )
    sample_size: PositiveInt | None = Field(None, description="Compare at most so many samples of each window, drawn at random.")
    device: Device = "cpu"


class DriftMetric(Spec):
    """Base of drift metrics."""

    permutations: PositiveInt = Field(200, description="For p-values.")


class UnivariateMetric(DriftMetric):
    """A metric of one column at a time, reduced over columns."""

    metric: Literal["ks", "cramer_von_mises", "hellinger", "jensen_shannon", "wasserstein"]
    reduce: Literal["mean", "max", "p_value"] = Field(
        "mean", description="Over columns: the mean or largest statistic, or the smallest p-value after correction."
    )
    correction: Literal["bonferroni", "holm", "fdr"] = Field("bonferroni", description="Of p-values, for `reduce: p_value`.")
    bins: PositiveInt = Field(30, description="For hellinger and jensen_shannon.")


class MMDMetric(DriftMetric):
    """Maximum mean discrepancy, unbiased, RBF kernel (Gretton et al., JMLR 2012)."""

    metric: Literal["mmd"]
    bandwidth: PositiveFloat | None = Field(None, description="Sigma of the kernel; default: the median heuristic.")
    random_features: PositiveInt | None = Field(None, description="Approximate by so many random Fourier features.")
    block: PositiveInt = Field(1024, description="Rows of the kernel matrix held at once; bounds memory.")


class EnergyMetric(DriftMetric):
    """Energy distance (Székely & Rizzo 2013)."""

    metric: Literal["energy"]
    block: PositiveInt = 1024


class FrechetMetric(DriftMetric):
    """Fréchet distance between Gaussians fitted to PCA embeddings (DriftLens, Greco et al. 2024)."""

    metric: Literal["frechet"]
    components: PositiveInt = 50


class LSDDMetric(DriftMetric):
    """Least-squares density difference (Sugiyama et al., Neural Computation 2013)."""

    metric: Literal["lsdd"]
    centers: PositiveInt = 100
    bandwidth: PositiveFloat | None = None


class ClassifierMetric(DriftMetric):
    """Classifier two-sample test: accuracy of telling the windows apart (Lopez-Paz & Oquab, ICLR 2017)."""

    metric: Literal["classifier"]
    folds: int = Field(5, ge=2)


class CustomMetric(DriftMetric):
    """A metric of the user's: ``factory(**config)`` returns a function of two windows and a random generator to a number.

    The number grows with drift. P-values come from random splits of both windows, so the function is called once for each.
    """

    metric: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}


class BackendMetric(Spec):
    """A metric of another library; ``config`` goes to it.

    alibi: mmd, lsdd, ks, cvm, fet, chi_square, classifier, learned_kernel. evidently: mmd, model, ratio and distance of whole
    embeddings, and its tests of single columns by their names there (ks, wasserstein, psi, ...).
    """

    backend: Literal["alibi", "evidently"]
    metric: str
    config: dict[str, Any] = {}
    reduce: Literal["mean", "max", "p_value"] = Field("mean", description="Of tests of single columns, as for our own.")
    correction: Literal["bonferroni", "holm", "fdr"] = "bonferroni"


OwnMetricSpec = Annotated[
    UnivariateMetric | MMDMetric | EnergyMetric | FrechetMetric | LSDDMetric | ClassifierMetric | CustomMetric,
    Field(discriminator="metric"),
]
DriftMetricSpec = BackendMetric | OwnMetricSpec
