"""How the models of a pipeline are stored: never what they are, so no part of a run's identity."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

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

    strategy: Literal["adaptive", "snapshot", "changed_layers", "delta", "provenance"] = Field(
        "adaptive", description="`provenance` stores no weights: a model is trained again when it is needed."
    )
    root: str | None = Field(
        None,
        description="Folder (relative to MODYN_HOME) or fsspec URL, without user or password: fsspec finds keys in the "
        "environment or its own configuration. Default: `models`. What is elsewhere already stays there.",
    )
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

    retrain: bool = Field(
        False, description="`adaptive` may choose `provenance`; it needs `training.deterministic`, and data that stay."
    )

    @field_validator("root")
    @classmethod
    def _shows_no_secret(cls, root: str | None) -> str | None:
        if root is not None and "://" in root and ("@" in root or "?" in root):
            raise ValueError("must not have a user, a password or a query; give these to fsspec by its environment variables")
        return root

    @model_validator(mode="after")
    def _keeps_its_promise(self) -> Self:
        if self.max_recovery_seconds is not None and self.strategy != "adaptive":
            raise ValueError(f"max_recovery_seconds needs strategy adaptive: {self.strategy} takes as long as it takes")
        if self.retrain and self.strategy != "adaptive":
            raise ValueError(f"retrain needs strategy adaptive, which may choose; {self.strategy} is chosen")
        return self
