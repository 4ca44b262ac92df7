"""When to train: one block per triggering policy, told apart by ``kind``."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from modyn_dagster.spec.base import Duration, Spec


class TriggerBase(Spec):
    """What every trigger block may say."""

    max_triggers: PositiveInt | None = Field(None, description="Fire at most this often in one run.")


class AmountTriggerSpec(TriggerBase):
    """Fire at every ``every``-th sample of the training stream."""

    kind: Literal["amount"]
    every: PositiveInt


class TimeTriggerSpec(TriggerBase):
    """Fire at ticks of sample time: ``start + n * every``, n >= 1."""

    kind: Literal["time"]
    every: Duration
    start: datetime | date | None = Field(None, description="UTC unless it names a zone; default: the first sample's time.")


TriggerSpec = Annotated[AmountTriggerSpec | TimeTriggerSpec, Field(discriminator="kind")]
