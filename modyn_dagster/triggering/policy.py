"""What a triggering policy is: a state machine over the stream that does no I/O."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.stream.training_stream import Stream

State = dict[str, Any]


# Not frozen, like ModelTrained: one is made for every sample at worst, and freezing triples what that takes.
@dataclass(slots=True)
class Decision:
    """What was decided at a point, and why. Nobody changes one.

    Attributes:
        fire: whether to train.
        key: the last key to train on; at or before the point, after the last trigger's key.
        reason: for people, for example ``5000 samples``.
        score: what was measured, where something was.
        threshold: what the score was compared with.
        details: more of the reason as JSON values: windows, scores of several metrics, votes, what suppressed a fire.
    """

    fire: bool
    key: int
    reason: str
    score: float | None = None
    threshold: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ModelTrained:
    """What a policy is told when the model of a trigger has been committed. Nobody changes it.

    Attributes:
        key: of the trigger.
        n_samples: size of its training set.
        seconds: wall time of selection and training.
    """

    key: int
    n_samples: int
    seconds: float


class TriggeringPolicy(ABC):
    """Names the next point at which something can be decided, says what it needs measured there, and decides.

    The driver calls ``next_point``, ``needs`` and ``decide`` at that point, ``triggered`` when a trigger was made (by this
    policy's decision, or by a person), and ``model_trained`` when the trigger's model is there. A policy inside another one
    is called by that one in the same way: its own fire may be suppressed or outvoted, and only ``triggered`` says that
    training begins. State goes in and comes out as JSON; a policy restored between two decisions decides the same.
    """

    @abstractmethod
    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Key of the sample whose arrival makes the next decision possible, after ``cursor``; None while it has not arrived."""

    def needs(self, point: int) -> MeasurementSpec:
        """What to measure at the point that ``next_point`` just named, by path; empty when nothing is needed."""
        return {}

    @abstractmethod
    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Decide at the point that ``next_point`` just named, from what ``needs`` asked for there."""

    def triggered(self, key: int) -> None:  # noqa: B027 - some policies do not care
        """A trigger was made that trains up to and including ``key``."""

    def model_trained(self, trained: ModelTrained) -> None:  # noqa: B027 - most policies do not care
        """The model of the last trigger is there; skipped and failed triggers are not told."""

    def hears(self, message: str) -> bool:
        """Whether it does anything when it is told ``triggered`` or ``model_trained``; otherwise nobody need tell it."""
        return getattr(type(self), message) is not getattr(TriggeringPolicy, message)

    @abstractmethod
    def state_dict(self) -> State:
        """Everything a later process needs to go on, as JSON values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of ``state_dict``; an empty state is a fresh start."""
