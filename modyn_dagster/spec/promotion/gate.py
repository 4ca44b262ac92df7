"""Promotion of a pipeline's models: the test of a candidate against the champion, and the rules around it."""

from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Fraction, Spec
from modyn_dagster.spec.promotion.limits import GuardrailsSpec, RollbackSpec, ShadowSpec
from modyn_dagster.spec.tasks.metrics import PAIRWISE, MetricId, estimated_metric, has_sample_losses

TestName = Literal["confidence_sequence", "mcnemar", "block_bootstrap"]
#: Names of the tests, the default first.
TESTS: Final[tuple[TestName, ...]] = get_args(TestName)
#: Metrics whose losses have no bound of their own.
UNBOUNDED: Final = ("mse", "mae", "pinball", "reconstruction")


class PromotionSpec(Spec):
    """Rules by which a newer model becomes the champion. Durations are stream time."""

    against: Literal["champion"] = "champion"
    metric: MetricId | None = Field(None, description="Decides; default: the metric of the pipeline score.")
    margin: NonNegativeFloat = Field(0.0, description="Difference that a candidate has to exceed, in the unit of the metric.")
    confidence: Fraction = Field(
        0.95, description="1 less the probability that a run ever promotes a model that is not better, over all its candidates."
    )
    min_samples: PositiveInt = Field(100, description="With fewer pairs of predictions nothing is decided.")
    min_coverage: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Share of the mature samples whose labels must be known; below it nothing is decided."
    )
    test: TestName = "confidence_sequence"
    bound: PositiveFloat | None = Field(
        None,
        description="Largest loss of a sample that counts: 5 for log_loss unless given; needed for mse, mae, pinball losses "
        "and reconstructions.",
    )
    block: PositiveInt | None = Field(None, description="Samples of a block of block_bootstrap; default: by samples and looks.")
    window: Duration | None = Field(
        None,
        description="Evidence is gathered in windows of this length: a pair counts in the one in which it enters, and each has a "
        "smaller share of error. Default: one.",
    )
    guardrails: GuardrailsSpec = GuardrailsSpec()
    shadow: ShadowSpec = ShadowSpec()
    approve: Literal["automatic", "manual"] = "automatic"
    rollback: RollbackSpec | None = None
    former: PositiveInt = Field(
        10, description="Champions before the current one that a rollback can go to; retention removes the models of older ones."
    )

    @model_validator(mode="after")
    def _settings_fit_the_test(self) -> Self:
        if self.test == "mcnemar" and self.margin != 0:
            raise ValueError("mcnemar tests against a margin of 0 alone; use confidence_sequence")
        if self.bound is not None and self.test != "confidence_sequence":
            raise ValueError("only confidence_sequence bounds losses; leave bound out")
        if self.block is not None and self.test != "block_bootstrap":
            raise ValueError("only block_bootstrap has blocks; leave block out")
        if self.rollback is not None and self.rollback.guardrails and not self.guardrails.metrics:
            raise ValueError("rollback.guardrails watches guardrails.metrics, and there are none")
        return self

    def metric_problem(self, metric: str) -> str | None:
        """Say why a metric does not go with the test; None where it does."""
        if (problem := untested(metric)) is not None:
            return f"{metric} {problem}"
        if self.test == "mcnemar" and metric != "accuracy":
            return f"mcnemar tests the accuracy alone, not {metric}; use another test"
        if self.test == "confidence_sequence" and not has_sample_losses(metric):
            return f"{metric} is no mean of losses of single samples; use test: block_bootstrap"
        if self.test == "block_bootstrap" and has_sample_losses(metric):
            return f"{metric} is a mean of losses; use test: confidence_sequence, which holds at every look"
        if self.test == "confidence_sequence" and metric.startswith(UNBOUNDED) and self.bound is None:
            return f"the losses of {metric} have no bound of their own: give promotion.bound, the largest that counts"
        return None


def untested(metric: str) -> str | None:
    """Say why no test takes a metric; None where one does.

    >>> untested("accuracy"), untested("nt_xent")
    (None, 'compares samples with each other, and no test holds for that; name another metric')
    """
    if estimated_metric(metric) is not None:
        return "estimates without labels, and a test compares predictions with labels; name the metric itself"
    return "compares samples with each other, and no test holds for that; name another metric" if metric in PAIRWISE else None
