"""Strategies of storing a model, with their settings; a name stands for the default settings of each kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from modyn_dagster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Full state of a model.

    Plain files need no other file; compressed ones refer to large tensors that another model of the store already holds.

    Attributes:
        compress: byte planes and zstd, or plain safetensors; None: by the size of the model.
    """

    compress: bool | None = None

    kind = "snapshot"


@dataclass(frozen=True, slots=True)
class ChangedLayers:
    """Tensors whose hash differs from the base's; the base is not read.

    Source: the parameter update approach of MMlib (Strassenburg et al., EDBT 2022).
    """

    kind = "changed_layers"


@dataclass(frozen=True, slots=True)
class Delta:
    """Difference to a keyframe, tensor by tensor; unchanged tensors are references.

    Attributes:
        operator: subtract floats as ordered integers, or xor.
        max_depth: limit of the differences to apply for a tensor; 1 means differences to the keyframe only.
        full_model_interval: number of models along a lineage after which one is stored whole; None: no limit.

    >>> Delta("xor", full_model_interval=None)
    Delta(operator='xor', max_depth=1, full_model_interval=None)
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
    """No weights, only the recipe of the training.

    Source: the provenance approach of MMlib (Strassenburg et al., EDBT 2022).
    """

    kind = "provenance"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of bytes and seconds, whose sum the adaptive strategy minimises.

    Attributes:
        store: price of a stored GB.
        save: price of a second of saving.
        recover: price of a second of recovery.
        recoveries: expected number of recoveries of a model.

    >>> Prices(store=2.0, save=0.0, recover=0.5, recoveries=4.0).cost(1e9, save_seconds=3.0, recover_seconds=1.0)
    4.0
    """

    store: float = 1.0
    save: float = 0.01
    recover: float = 0.01
    recoveries: float = 1.0

    def cost(self, n_bytes: float, save_seconds: float, recover_seconds: float) -> float:
        """Cost of one model."""
        recovering = self.recoveries * recover_seconds * self.recover
        return n_bytes / 1e9 * self.store + save_seconds * self.save + recovering


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Cheapest of the other strategies for a model, by measurements on samples of its tensors.

    Source: the choice that MMlib leaves as future work (Strassenburg et al., EDBT 2022, section 6).

    Attributes:
        prices: weights of bytes and seconds.
        max_recovery_seconds: limit of the estimated time to recover; None: no limit.
        delta: settings of differences.
    """

    prices: Prices = Prices()
    max_recovery_seconds: float | None = None
    delta: Delta = Delta()

    kind = "adaptive"


@dataclass(frozen=True, slots=True)
class Custom:
    """Choice of the user's among the other strategies, by their estimated costs.

    Attributes:
        choose: a ``StorageChoice``: of offers and the situation of a model, one of the offers.
        name: of the function, for the recorded reason and errors.
        delta: settings of differences.
    """

    choose: Callable[..., Any]
    name: str
    delta: Delta = Delta()

    kind = "custom"


Strategy = Snapshot | ChangedLayers | Delta | Retrain | Adaptive | Custom

STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.kind: strategy for strategy in (Snapshot(), ChangedLayers(), Delta(), Retrain(), Adaptive())
}


def strategy_of(strategy: str | Strategy) -> Strategy:
    """Strategy by name or itself; ``ConfigError`` lists the names."""
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        raise ConfigError("model store", "strategy", strategy, f"must be one of {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy]
