"""Policies of the comparison: trigger blocks in the units of a stream."""

from typing import Any, Final

from benchmarks.policy_streams import Units

#: Trigger blocks by name.
Blocks = dict[str, dict[str, Any]]

_AUTODRIFT: Final = {"rule": "quantile", "window": 15, "quantile": 0.05}
_MMD: Final = {"mmd": {"metric": "mmd"}}
#: Budgets and ensembles with it hold a price per training, so that decisions do not depend on the machine.
_SECOND: Final = {"fixed": 1.0}


def blocks(units: Units) -> Blocks:
    """Policies by name; those by time and amount come first."""
    few, many = units.amounts
    short, long = units.times
    autodrift = _drift(units, _MMD, _AUTODRIFT)
    either = _ensemble("any", drift=autodrift, time={"kind": "time", "every": long})
    return {
        "trained once": {"kind": "amount", "every": few, "max_triggers": 1},
        f"time {short}": {"kind": "time", "every": short},
        f"time {long}": {"kind": "time", "every": long},
        f"amount {few}": {"kind": "amount", "every": few},
        f"amount {many}": {"kind": "amount", "every": many},
        f"MMD >= {units.mmd}": _drift(units, _MMD, {"rule": "threshold", "value": units.mmd}),
        "MMD p <= .01": _drift(units, _MMD, {"rule": "p_value", "alpha": 0.01}),
        "MMD AutoDrift": autodrift,
        "MMD AutoDrift calibrated": _drift(
            units, _MMD, {"rule": "quantile", "window": 15, "quantile": 0.0625, "calibrated": True}
        ),
        "KS on outputs p <= .01": _drift(units, {"ks": {"metric": "ks"}}, {"rule": "p_value", "alpha": 0.01}, of="outputs"),
        f"accuracy {units.accuracy:.0%}": _performance(units, {"rule": "threshold", "value": units.accuracy}),
        "accuracy AutoDrift": _performance(units, _AUTODRIFT),
        "ADWIN on errors": {**_measured(units), "kind": "detector", "detector": {"name": "adwin"}},
        "cost of latency": _cost(units, "latency", units.sample_seconds),
        "cost of mistakes": _cost(units, "misclassifications", units.mistakes),
        f"MMD AutoDrift, 2 per {long}": {"kind": "budget", "per": long, "triggers": 2, "policy": autodrift},
        f"AutoDrift or time {long}": either,
        # A tick soon after a drift trigger would otherwise finetune on the few samples in between.
        f"the same, {units.every} samples": {"kind": "minimum_samples", "samples": units.every, "policy": either},
        "AutoDrift and accuracy": _ensemble("all", drift=autodrift, accuracy=_performance(units, _AUTODRIFT)),
    }


def _measured(units: Units) -> dict[str, Any]:
    return {"every": units.every, "warmup": {"intervals": 10, "policy": {"kind": "time", "every": units.times[0]}}}


def _drift(units: Units, metrics: dict[str, Any], decision: dict[str, Any], *, of: str = "embeddings") -> dict[str, Any]:
    windows = {"by": "amount", "reference": 4 * units.every, "current": units.every}
    features = {"of": of, "sample_size": 1000}
    return {
        **_measured(units),
        "kind": "drift",
        "windows": windows,
        "metrics": metrics,
        "features": features,
        "decision": decision,
    }


def _performance(units: Units, decision: dict[str, Any]) -> dict[str, Any]:
    return {**_measured(units), "kind": "performance", "decision": decision}


def _cost(units: Units, signal: str, price: float) -> dict[str, Any]:
    fields = {"signal": signal, "regret_per_training_second": price, "seconds": _SECOND}
    return {**_measured(units), "kind": "cost", **fields, **({"expected_accuracy": 0.9} if signal != "latency" else {})}


def _ensemble(rule: str, **policies: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "ensemble", "rule": rule, "policies": policies}
