"""Specs of selection: a window of the stream, and the samples to keep of it."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from modyn_dagster.spec.base import ImportPath, Spec
from modyn_dagster.spec.online import CLIBSpec, GSSSpec, MemorySpec, MIRSpec, OnlineSpec, TimeBiased
from modyn_dagster.spec.strategies.own import CustomStrategySpec, SQLStrategySpec
from modyn_dagster.spec.strategies.sized import Sized, Weighing


class LastTriggers(Spec):
    """Samples since the n-th last trigger: ``last_triggers: 1`` is the newest stretch alone."""

    last_triggers: PositiveInt


Window = Literal["since_last_trigger", "all"] | LastTriggers
#: Range that training sets come from: a window, or everything since the run began.
Reach = Window | Literal["run"]


class AllSpec(Spec):
    """Everything in the window."""

    kind: Literal["all"] = "all"


class UniformSpec(Sized):
    """Every subset of the size is equally likely."""

    kind: Literal["uniform"]


class UniformWithoutReplacementSpec(Sized):
    """Uniform among the samples of the window that the run's models were trained on least often: each is used once before any
    is used again.
    """

    kind: Literal["uniform_without_replacement"]


class ByAttribute(Spec):
    """Groups of equal values of an attribute; samples without it are a group of their own."""

    attribute: Annotated[str, Field(min_length=1)]


class BalancedSpec(Weighing):
    """As equal numbers as possible of every label, trigger of the window, or value of an attribute."""

    kind: Literal["balanced"]
    by: Literal["label", "trigger"] | ByAttribute = "label"
    filling: Literal["fair", "exact", "equal"] = Field(
        "fair",
        description="fair: what small groups lack goes to the others in equal parts; exact: and the size is exact, so that some "
        "groups give one more; equal: all give as many as the smallest can.",
    )


class FreshnessSpec(Weighing):
    """A share of samples that no model of the run was trained on; what one side lacks the other gives."""

    kind: Literal["freshness"]
    unused: Annotated[float, Field(ge=0, le=1)]


class WeightedSpec(Weighing):
    """Chances in proportion to an attribute or to an SQLAlchemy expression, without replacement.

    The expression is a callable by import path: it gets the columns of the table ``sample`` and returns a number per sample.
    """

    kind: Literal["weighted"]
    attribute: Annotated[str, Field(min_length=1)] | None = None
    expression: ImportPath | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.attribute is None) == (self.expression is None):
            raise ValueError("give either attribute or expression")
        return self


class SimilarToUnlabelledSpec(Sized):
    """IWMS: labelled samples that resemble the newest samples without a label, of the classes predicted for these."""

    kind: Literal["similar_to_unlabelled"]
    unlabelled: PositiveInt = Field(1000, description="Newest samples without a label to compare with, at most.")
    choice: Literal["proportional", "nearest"] = Field(
        "proportional", description="Draw samples in proportion to the cosine of embeddings, or take those with the largest."
    )
    layer: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Module of the model whose outputs are the embeddings; default: the input of the last linear layer."
    )


Strategy = Annotated[
    AllSpec
    | UniformSpec
    | UniformWithoutReplacementSpec
    | BalancedSpec
    | FreshnessSpec
    | WeightedSpec
    | SimilarToUnlabelledSpec
    | CustomStrategySpec
    | SQLStrategySpec
    | TimeBiased
    | MemorySpec,
    Field(discriminator="kind"),
]
#: Strategies whose samples are chosen by losses, gradients, outputs or embeddings of the run's models.
CHOSEN_BY_MODELS: Final = (CLIBSpec, GSSSpec, MIRSpec, SimilarToUnlabelledSpec)


def is_usage_aware(strategy: Strategy) -> bool:
    """Tell if a strategy depends on earlier training sets, which must be kept for it."""
    if isinstance(strategy, CustomStrategySpec):
        return strategy.usage
    return isinstance(strategy, UniformWithoutReplacementSpec | FreshnessSpec)


class Stage(Spec):
    """A strategy and the first trigger it is used at, counted from 0."""

    from_trigger: PositiveInt
    strategy: Strategy


class SelectionSpec(Spec):
    """The window of a trigger and what of it to train on."""

    window: Window = "since_last_trigger"
    window_by: Literal["sample", "label"] = Field(
        "sample",
        description="Arrival that puts a sample into a window: its own, or that of its first label, where labels arrive later.",
        exclude_if=lambda by: by == "sample",
    )
    # Excluded by default, so that pipelines without these fields keep their hash and their live runs.
    strategy: Strategy = Field(AllSpec(), exclude_if=lambda strategy: isinstance(strategy, AllSpec))
    warmup_triggers: NonNegativeInt = Field(
        0, description="The first triggers use their whole window, up to the limit.", exclude_if=lambda n: n == 0
    )
    schedule: list[Stage] = Field(
        [], description="Other strategies from later triggers on.", exclude_if=lambda stages: not stages
    )
    limit: PositiveInt | None = Field(
        None, description="Keep at most this many samples, whatever the strategy; of everything, chosen uniformly."
    )
    backend: Literal["arrow", "postgres"] = Field("arrow", description="Where keys are read; the result is the same.")
    partition_size: PositiveInt = Field(100_000, description="Keys per record batch of the training set; bounds memory.")

    @property
    def strategies(self) -> list[Strategy]:
        """All strategies that are used at some trigger."""
        return list(self.by_field.values())

    @property
    def by_field(self) -> dict[str, Strategy]:
        """All strategies by their dotted fields in a pipeline, such as `selection.schedule.0.strategy`."""
        later = {f"selection.schedule.{i}.strategy": stage.strategy for i, stage in enumerate(self.schedule)}
        return {"selection.strategy": self.strategy, **later}

    @property
    def by_label(self) -> bool:
        """Windows consist of the samples that got their label in them; one of everything is the same either way."""
        return self.window_by == "label" and self.window != "all"

    @property
    def reach(self) -> Reach:
        """Largest range of a training set: a strategy that follows the stream may keep samples since the run began."""
        follows = any(isinstance(strategy, OnlineSpec) and strategy.reset == "never" for strategy in self.strategies)
        return "run" if follows and self.window != "all" else self.window

    @property
    def most(self) -> int | None:
        """Largest possible number of samples of a training set; None if there is no bound."""
        sizes = [strategy.places if isinstance(strategy, OnlineSpec) else None for strategy in self.strategies]
        bounded = [n for n in sizes if n is not None]
        bound = max(bounded) if len(bounded) == len(sizes) and not self.warmup_triggers else None
        return min((n for n in (bound, self.limit) if n is not None), default=None)

    @model_validator(mode="after")
    def _stages_ascend(self) -> Self:
        starts = [stage.from_trigger for stage in self.schedule]
        if starts != sorted(set(starts)):
            raise ValueError(f"schedule: from_trigger must ascend strictly, found {starts}")
        return self

    @model_validator(mode="after")
    def _online_strategies_see_the_stream(self) -> Self:
        if isinstance(self.window, LastTriggers) and any(isinstance(strategy, OnlineSpec) for strategy in self.strategies):
            raise ValueError("window: strategies that follow the stream see all of it since the run began, or with `all` before")
        return self

    @model_validator(mode="after")
    def _online_strategies_take_samples_as_they_come(self) -> Self:
        if self.window_by == "label" and any(isinstance(strategy, OnlineSpec) for strategy in self.strategies):
            raise ValueError("window_by: strategies that follow the stream have no window; memories take samples as labels come")
        return self

    @model_validator(mode="after")
    def _backend_has_attributes(self) -> Self:
        if self.backend == "arrow" and any(_needs_attributes(strategy) for strategy in self.strategies):
            raise ValueError("attributes, expressions and statements are in Postgres only: set `backend: postgres`")
        return self


def _needs_attributes(strategy: Strategy) -> bool:
    by_attribute = isinstance(strategy, BalancedSpec) and isinstance(strategy.by, ByAttribute)
    if isinstance(strategy, CustomStrategySpec):
        return bool(strategy.attributes)
    return by_attribute or isinstance(strategy, WeightedSpec | SQLStrategySpec)
