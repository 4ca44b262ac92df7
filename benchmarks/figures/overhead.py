"""Overhead of the stage ``decide``: the loop over batches that replay and production share, without measurements."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from benchmarks.measure import Contender, Machine, Run, Spread, interleave
from benchmarks.report import Figure, short
from modyn_dagster.keys import ORIGIN, position_of
from modyn_dagster.pipeline.decide.driver import decisions_until_fire
from modyn_dagster.triggering import (
    DriftNeed,
    Measured,
    Measurement,
    MeasurementSpec,
    ModelTrained,
    Stream,
    StreamBatch,
    TriggeringPolicy,
    build_policy,
)

#: Batches, train samples in each, and the most seconds for a batch.
_BATCHES: Final = 200
_IN_BATCH: Final = 1_000
_BATCH_SECONDS: Final = 0.005
_DRIFT: Final = {
    "kind": "drift",
    "every": 250,
    "windows": {"by": "amount", "reference": 1_000, "current": 500},
    "metrics": {"mmd": {"metric": "mmd"}, "ks": {"metric": "ks"}},
    "decision": {"rule": "quantile", "window": 15, "quantile": 0.05},
}
_REPLAYED: Final[dict[str, dict[str, Any]]] = {
    "amount": {"kind": "amount", "every": 250},
    "time": {"kind": "time", "every": "4h"},
    "drift": _DRIFT,
    "ensemble": {"kind": "ensemble", "policies": {"drift": _DRIFT, "time": {"kind": "time", "every": "1d"}}, "rule": "any"},
    "budget": {"kind": "budget", "per": "30d", "triggers": 4, "samples": 50_000, "policy": _DRIFT},
}


def overhead_figures(machine: Machine, batches: int = _BATCHES) -> Iterator[Figure]:
    """``deciding.overhead.<policy>``: milliseconds per batch that a replay's ledger has as stage ``decide``.

    The replay's own loop over batches of a thousand samples; what is measured is answered at once.
    """

    def contender(block: dict[str, Any]) -> Contender:
        return lambda: Run(batches, sum(_replayed(build_policy(block), batches)))

    rounds = interleave({name: contender(block) for name, block in _REPLAYED.items()}, machine)
    for name in _REPLAYED:
        per_batch = rounds.seconds(name)
        milliseconds = Spread(*(1000 * value / batches for value in (per_batch.value, per_batch.min, per_batch.max)))
        what = f"{name}: deciding per batch of {short(_IN_BATCH)} samples in a replay"
        yield Figure(f"deciding.overhead.{name}", what, milliseconds, "ms", 1000 * _BATCH_SECONDS, at_most=True)


def _replayed(policy: TriggeringPolicy, batches: int) -> Iterator[float]:
    """Seconds of deciding, point by point."""
    stream, cursor, last = Stream(()), ORIGIN, ORIGIN
    for ordinal in range(batches):
        stream = stream.extended(_batch(ordinal))
        fired = True
        while fired:
            fired = False
            for decided in decisions_until_fire(policy, cursor, stream, _answered):
                cursor, fired = decided.point, decided.decision.fire
                yield decided.seconds
            if fired:
                key = decided.decision.key
                policy.model_trained(ModelTrained(key, stream.count(last, key), 1.0))
                last = key


def _answered(point: int, needs: MeasurementSpec) -> Measurement:
    """Scores that now and then are high enough, and the same in every round."""
    high = position_of(point) % 997 / 997
    return {path: Measured(dict.fromkeys(need.metrics, high)) for path, need in needs.items() if isinstance(need, DriftNeed)}


def _batch(ordinal: int) -> StreamBatch:
    times = np.datetime64(60 * ordinal * _IN_BATCH, "s").astype("datetime64[us]") + np.arange(_IN_BATCH) * np.timedelta64(1, "m")
    return StreamBatch(ordinal, _IN_BATCH, times[-1], lambda: (np.arange(_IN_BATCH), times))
