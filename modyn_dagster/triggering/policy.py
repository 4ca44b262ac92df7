"""Triggering policy: a state machine over the stream that does no I/O."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.stream.training_stream import Stream

State = dict[str, Any]


# Not frozen, like ModelTrained: at worst one is made for every sample, and freezing triples its cost.
@dataclass(slots=True)
class Decision:
    """Decision at a point, with its reason. Treat as immutable.

    Attributes:
        fire: train now.
        key: last key to train on; at or before the point, after the key of the last trigger.
        reason: for people, for example ``5000 samples``.
        score: the measured score, where there is one.
        threshold: the number that the score was compared with.
        details: more of the reason as JSON values: windows, scores of several metrics, votes, the cap that suppressed a fire.
    """

    fire: bool
    key: int
    reason: str
    score: float | None = None
    threshold: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ModelTrained:
    """Report of a committed model to the policy. Treat as immutable.

    Attributes:
        key: of the trigger.
        n_samples: size of the training set.
        seconds: wall time of selection and training.
    """

    key: int
    n_samples: int
    seconds: float


class TriggeringPolicy(ABC):
    """Names the next decision point, states the measurements it needs there, and decides.

    The driver calls ``next_point``, ``needs`` and ``decide`` for each point, ``triggered`` at every trigger (of the policy or
    of a person), and ``model_trained`` once the trigger's model is committed. An outer policy calls the policy inside it in the
    same way: it may suppress or outvote a fire, and only ``triggered`` announces a training. State is saved and restored as
    JSON; a policy restored between two decisions makes the same decisions.
    """

    @abstractmethod
    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Key of the next sample after ``cursor`` at which the policy can decide; None while it has not arrived."""

    def needs(self, point: int) -> MeasurementSpec:
        """Measurements needed at the point that ``next_point`` just named, by path; empty where there are none."""
        return {}

    @abstractmethod
    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Decide at the point that ``next_point`` just named, from the measurements that ``needs`` named."""

    def triggered(self, key: int) -> None:  # noqa: B027 - optional
        """Take note of a trigger that trains up to and including ``key``."""

    def model_trained(self, trained: ModelTrained) -> None:  # noqa: B027 - optional
        """Take note of the committed model of the last trigger; not called for skipped and failed triggers."""

    @property
    def depends_on_models(self) -> bool:
        """Keys of triggers may depend on trained models: on measurements, or on sizes and seconds of trainings.

        Where they do not, a replay computes the coming triggers ahead of their trainings, as if every training succeeded. It
        compares them with the policy's decisions, so a wrong answer costs time, and changes no result.
        """
        return True

    def hears(self, message: str) -> bool:
        """The policy reacts to ``message``, ``triggered`` or ``model_trained``; otherwise the call may be left out."""
        return getattr(type(self), message) is not getattr(TriggeringPolicy, message)

    @abstractmethod
    def state_dict(self) -> State:
        """State that a later process continues from, as JSON values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of ``state_dict``; an empty state is a fresh start."""
