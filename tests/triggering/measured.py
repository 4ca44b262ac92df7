"""Trigger blocks that measure, and made-up scores for them."""

from typing import Any, Final, TypeVar

import numpy as np
from pydantic import TypeAdapter

from modyn_dagster.keys import KeyRange
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.triggers.drift import DriftMetricSpec, FeaturesSpec
from modyn_dagster.triggering import SimulatedDecision, Stream, TriggeringPolicy, build_policy, simulate
from modyn_dagster.triggering.drift import measure_drift
from modyn_dagster.triggering.measurement import DriftNeed, Need

Block = dict[str, Any]
N = TypeVar("N", bound=Need)


def point_of(policy: TriggeringPolicy, cursor: int, stream: Stream) -> int:
    """The next point of a policy, which has arrived."""
    point = policy.next_point(cursor, stream)
    assert point is not None
    return point


def need_of(policy: TriggeringPolicy, point: int, kind: type[N]) -> N:
    """The one thing that a policy needs at a point."""
    [need] = policy.needs(point).values()
    assert isinstance(need, kind)
    return need


WINDOWS: Final = {"by": "amount", "reference": 10, "current": 5}
MMD: Final = {"mmd": {"metric": "mmd"}}


def drift(decision: Block, **fields: Any) -> Block:
    """A drift block with MMD alone, unless fields say otherwise."""
    return {"kind": "drift", "every": 1, "windows": WINDOWS, "metrics": MMD, "decision": decision, **fields}


def performance(decision: Block, **fields: Any) -> Block:
    """A performance block."""
    return {"kind": "performance", "every": 1, "decision": decision, **fields}


BLOCKS: Final[dict[str, Block]] = {
    "threshold": drift({"rule": "threshold", "value": 0.7}, every=3),
    "several": drift(
        {"rule": "quantile", "window": 2, "quantile": 0.4},
        windows={"by": "time", "reference": "30d", "current": "9d", "overlap": True},
        metrics={"mmd": {"metric": "mmd"}, "ks": {"metric": "ks"}, "p": {"metric": "ks", "reduce": "p_value"}},
        aggregate={"at_least": 2},
    ),
    "calibrated": drift({"rule": "quantile", "window": 3, "quantile": 0.3, "calibrated": True}, max_triggers=3),
    "rolling": drift({"rule": "rolling_mean", "window": 2, "deviation": 0.1}, every=2),
    "p_value": drift({"rule": "p_value", "alpha": 0.3}, warmup={"intervals": 5, "policy": {"kind": "time", "every": "9d"}}),
    "accuracy": performance({"rule": "threshold", "value": 0.3}, every=4),
    "mature": performance({"rule": "threshold", "value": 0.3}, every=4, maturity="2d"),
    "avoidable": performance(
        {"rule": "misclassifications", "value": 2, "expected_accuracy": "calibrate", "allow_reduction": True},
        every=2,
        forecast={"method": "ridge", "window": 4},
    ),
    "detector": {"kind": "detector", "every": 2, "detector": {"name": "adwin"}},
    "latency": {"kind": "cost", "every": 2, "signal": "latency", "regret_per_training_second": 1e6},
    "mistakes": {"kind": "cost", "every": 2, "signal": "misclassifications", "regret_per_training_second": 0.2},
}


def scores_for(block: Block, points: int, seed: int) -> dict[str, np.ndarray]:
    """Scores in [0, 1) for so many points by metric, a tenth of them undefined; what a block does not ask for is left out."""
    rng = rng_for(seed, "scores")
    made = {name: np.where(rng.random(points) < 0.1, np.nan, rng.random(points)) for name in ("mmd", "ks", "p", "accuracy")}
    made |= {"expected_accuracy": rng.random(points), "detections": rng.integers(0, 2, points).astype(float)}
    if block["kind"] == "drift":
        return {name: made[name] for name in block["metrics"]}
    if block["kind"] == "detector":
        return {"detections": made["detections"]}
    return {name: made[name] for name in ("accuracy", "expected_accuracy")}


def decide(block: Block, scores: Any, *, n: int | None = None, **options: Any) -> list[SimulatedDecision]:
    """The decisions of a block with a point at every sample, one second after the other, as long as there are scores."""
    length = n if n is not None else len(scores)
    return simulate(build_policy(block), np.arange(length), scores=scores, **options)


def fires_on_a_shift(metric: Block) -> list[bool]:
    """Decisions on four windows, measured: the first one has no model yet, the last one is shifted by five deviations."""
    windows = {"by": "amount", "reference": 20, "current": 20}
    block = drift({"rule": "p_value", "alpha": 0.01}, every=20, windows=windows, metrics={"m": metric})
    policy, specs = build_policy(block), {"m": TypeAdapter(DriftMetricSpec).validate_python(metric)}
    features = rng_for(3, "shifted").normal(size=(80, 2)) + np.where(np.arange(80) < 60, 0.0, 5.0)[:, None]
    need = DriftNeed(0, KeyRange(0, 1), KeyRange(1, 2), specs, FeaturesSpec(), p_values=True)

    def measured(start: int, stop: int, _: object) -> float | None:
        return measure_drift(need, features[:20], features[start:stop], seed=1).values["m"]

    return [one.fire for one in simulate(policy, np.arange(80), scores=measured)]
