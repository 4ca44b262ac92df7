"""Specs of online strategies, which keep a sample of the stream and update it batch by batch."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Fraction, Spec

#: Number of items among which counts are no longer dealt exactly: a bound of NumPy's hypergeometric distribution.
_MOST_DEALT: Final = 10**9


class KeepSpec(Spec):
    """A decay rate from what it should do: with the chance ``keep``, at least one of ``items`` samples that old is still there.

    With the default of one item a share ``keep`` of what is ``after`` old remains.
    """

    keep: Fraction
    after: Duration
    items: PositiveInt = 1


class RateSpec(Spec):
    """A decay rate: a chance falls by ``exp(-rate)`` in every ``per`` of sample time."""

    rate: NonNegativeFloat
    per: Duration


DecaySpec = KeepSpec | RateSpec


class OnlineSpec(Spec):
    """Base of online strategies; ``reset`` decides if the sample begins anew once a model was trained on it."""

    reset: Literal["never", "after_trigger"] = "never"

    @property
    def places(self) -> int | None:
        """Largest number of samples that the strategy keeps; None if there is no bound."""
        return getattr(self, "n", None)


class WeighedOnlineSpec(OnlineSpec):
    """A sample in which every chance is known."""

    weights: Literal["equal", "unbiased"] = Field(
        "equal",
        description="All weigh alike, so that the model is fitted to the sample as it is; or each by the inverse of its chance, "
        "so that weighted sums stay those of everything seen, whatever its age.",
    )


class ShardedSpec(WeighedOnlineSpec):
    """A sample that may be kept in shards: the same law with other random choices."""

    # Excluded by default, so that pipelines without it keep their hash and their live runs.
    shards: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None,
        exclude_if=lambda shards: shards is None,
        description="Keep the sample in so many shards, which workers update. The number of shards decides about the random "
        "choices, that of the workers does not.",
    )


class RTBSSpec(ShardedSpec):
    """R-TBS: at most ``n`` samples, whose chances decay with their age."""

    kind: Literal["rtbs"]
    n: PositiveInt
    decay: DecaySpec
    min_fill: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Below this share of filled places there is too little fresh data: the trigger is skipped."
    )

    @model_validator(mode="after")
    def _counts_can_be_dealt(self) -> Self:
        if self.shards is not None and self.n >= _MOST_DEALT:
            raise ValueError(f"n must be below {_MOST_DEALT:,} for a sample in shards")
        return self


class TTBSSpec(ShardedSpec):
    """T-TBS: ``n`` samples in expectation, while ``mean_batch_size`` of them arrive per ``unit`` of sample time."""

    kind: Literal["ttbs"]
    n: PositiveInt
    decay: DecaySpec
    mean_batch_size: PositiveFloat
    unit: Duration = "1d"

    @property
    def places(self) -> int | None:
        """None: the size is bounded only in expectation."""
        return None


class BTBSSpec(WeighedOnlineSpec):
    """B-TBS: everything that arrives, kept with chances that decay; its size has no bound."""

    kind: Literal["btbs"]
    decay: DecaySpec


class UniformReservoirSpec(WeighedOnlineSpec):
    """``n`` samples, chosen uniformly from everything seen."""

    kind: Literal["uniform_reservoir"]
    n: PositiveInt


class SlidingWindowSpec(OnlineSpec):
    """The newest samples: the last ``n``, or those of the last ``span`` of sample time."""

    kind: Literal["sliding_window"]
    n: PositiveInt | None = None
    span: Duration | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.n is None) == (self.span is None):
            raise ValueError("give either n or span")
        return self


class GDumbSpec(OnlineSpec):
    """GDumb: ``n`` samples, as equal numbers of every class as came, first come first served."""

    kind: Literal["gdumb"]
    n: PositiveInt


class CLIBSpec(OnlineSpec):
    """CLIB: ``n`` samples, balanced over classes, of each those whose loss fell most from model to model."""

    kind: Literal["clib"]
    n: PositiveInt
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9


class GSSSpec(OnlineSpec):
    """GSS: ``n`` samples whose gradients under the newest model point into different directions."""

    kind: Literal["gss"]
    n: PositiveInt
    candidates: PositiveInt = Field(10, description="Random samples of the memory that a new one is compared with.")


class MIRSpec(OnlineSpec):
    """MIR: everything since the last model, and of ``n`` earlier samples the ``k`` that a step on it would hurt most."""

    kind: Literal["mir"]
    n: PositiveInt
    k: PositiveInt

    @property
    def places(self) -> int | None:
        """None: all samples since the last model are added to the memory."""
        return None

    @model_validator(mode="after")
    def _no_more_than_there_is(self) -> Self:
        if self.k > self.n:
            raise ValueError(f"k must be at most n = {self.n}")
        return self


#: Strategies that need only keys and times, and strategies that read samples.
TimeBiased = RTBSSpec | TTBSSpec | BTBSSpec | UniformReservoirSpec | SlidingWindowSpec
MemorySpec = GDumbSpec | CLIBSpec | GSSSpec | MIRSpec
