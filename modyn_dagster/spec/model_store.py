"""How the models of a pipeline are stored: never what they are, so no part of a run's identity."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Spec

Price = Annotated[float, Field(ge=0)]


class PricesSpec(Spec):
    """What `adaptive` minimises: `GB * store + seconds to save * save + recoveries * seconds to recover * recover`."""

    store: Price = 1.0
    save: Price = 0.01
    recover: Price = 0.01
    recoveries: Price = Field(1.0, description="How often a model is expected to be loaded.")


class ModelStoreSpec(Spec):
    """The strategy of the model store, and its settings; the base is the run's model before."""

    strategy: Literal["adaptive", "snapshot", "changed_layers", "delta"] = "adaptive"
    operator: Literal["subtract", "xor"] = Field("subtract", description="What a difference is, for `delta` and `adaptive`.")
    max_depth: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Differences to apply at most until a model is there; 1: all are to the keyframe."
    )
    full_model_interval: PositiveInt | None = Field(
        10, description="Every so many models one is stored whole, for `delta` and `adaptive`; null: never because of that."
    )
    prices: PricesSpec = PricesSpec()
    max_recovery_seconds: PositiveFloat | None = Field(
        None, description="A strategy whose models would take longer to load is not chosen by `adaptive`."
    )

    @model_validator(mode="after")
    def _keeps_its_promise(self) -> Self:
        if self.max_recovery_seconds is not None and self.strategy != "adaptive":
            raise ValueError(f"max_recovery_seconds needs strategy adaptive: {self.strategy} takes as long as it takes")
        return self
