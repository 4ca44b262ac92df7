"""What to train on: a window of the stream and what to keep of it."""

from typing import Literal

from pydantic import Field, PositiveInt

from modyn_dagster.spec.base import Spec


class LastTriggers(Spec):
    """What arrived since the n-th last trigger: ``last_triggers: 1`` is the newest stretch alone."""

    last_triggers: PositiveInt


Window = Literal["since_last_trigger", "all"] | LastTriggers


class SelectionSpec(Spec):
    """The window of a trigger, and a uniform subset of it when ``limit`` is set."""

    window: Window = "since_last_trigger"
    limit: PositiveInt | None = Field(None, description="Keep at most this many samples, chosen uniformly.")
    backend: Literal["arrow", "postgres"] = Field("arrow", description="Where keys are read; the result is the same.")
    partition_size: PositiveInt = Field(100_000, description="Keys per record batch of the training set; bounds memory.")
