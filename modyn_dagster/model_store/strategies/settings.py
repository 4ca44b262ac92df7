"""How a model is stored: a name for the default of each kind, or one of these objects for its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from modyn_dagster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The full state. ``compress``: byte planes and zstd; else plain safetensors; None: what suits the size.

    Plain ones need no other file; compressed ones refer to large tensors that another model of the store has already.
    """

    compress: bool | None = None

    kind = "snapshot"


@dataclass(frozen=True, slots=True)
class ChangedLayers:
    """Only tensors whose hash differs from the base's (the parameter update of MMlib, EDBT 2022); the base is not read."""

    kind = "changed_layers"


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference to the keyframe, tensor by tensor; unchanged tensors are references.

    Attributes:
        operator: subtract floats as ordered integers, or xor.
        max_depth: differences to apply at most until a tensor is there; 1 is the keyframe's.
        full_model_interval: every so many models along a lineage is stored whole; None: never because of that.
    """

    operator: Literal["subtract", "xor"] = "subtract"
    max_depth: int = 1
    full_model_interval: int | None = 10

    kind = "delta"

    def __post_init__(self) -> None:
        if self.operator not in ("subtract", "xor"):
            raise ConfigError("strategy delta", "operator", self.operator, "must be subtract or xor")
        if not 1 <= self.max_depth <= 16:
            raise ConfigError("strategy delta", "max_depth", self.max_depth, "must lie between 1 and 16")
        if self.full_model_interval is not None and self.full_model_interval < 1:
            raise ConfigError("strategy delta", "full_model_interval", self.full_model_interval, "must be at least 1")


@dataclass(frozen=True, slots=True)
class Retrain:
    """No weights: how to train them again."""

    kind = "provenance"


@dataclass(frozen=True, slots=True)
class Prices:
    """What adaptive minimises: ``GB * store + seconds to save * save + recoveries * seconds to recover * recover``."""

    store: float = 1.0
    save: float = 0.01
    recover: float = 0.01
    recoveries: float = 1.0

    def cost(self, n_bytes: float, save_seconds: float, recover_seconds: float) -> float:
        """The cost of one model."""
        recovering = self.recoveries * recover_seconds * self.recover
        return n_bytes / 1e9 * self.store + save_seconds * self.save + recovering


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The cheapest of the others for this model, by what was measured, within ``max_recovery_seconds``."""

    prices: Prices = Prices()
    max_recovery_seconds: float | None = None
    delta: Delta = Delta()

    kind = "adaptive"


Strategy = Snapshot | ChangedLayers | Delta | Retrain | Adaptive

STRATEGIES: Final[Mapping[str, Strategy]] = {
    each.kind: each for each in (Snapshot(), ChangedLayers(), Delta(), Retrain(), Adaptive())
}


def strategy_of(strategy: str | Strategy) -> Strategy:
    """The default of a name; ``ConfigError`` lists the names."""
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        raise ConfigError("model store", "strategy", strategy, f"must be one of {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy]
