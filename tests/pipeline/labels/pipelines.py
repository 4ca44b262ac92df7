"""Small pipelines of every kind of triggering policy and of selection strategy, for the laws of labels that arrive later."""

from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import Strategy
from modyn_dagster.spec.triggers.trigger import TriggerSpec
from tests.projects.tiny import Content, amount, triggered
from tests.projects.user_code import tiny_strategies
from tests.triggering import user_policies

Block = dict[str, Any]

AMOUNT: Final[Block] = {"kind": "amount", "every": 45}
PERFORMANCE: Final[Block] = {"kind": "performance", "every": 20, "decision": {"rule": "threshold", "value": 0.6}}
DRIFT: Final[Block] = {
    "kind": "drift",
    "every": 20,
    "windows": {"by": "amount", "reference": 60, "current": 20},
    "metrics": {"mmd": {"metric": "mmd"}},
    "features": {"of": "embeddings"},
    "decision": {"rule": "threshold", "value": 0.1},
}
COST: Final[Block] = {"kind": "cost", "every": 20, "seconds": {"fixed": 1, "per_sample": 0.01}}
DETECTOR: Final[Block] = {"kind": "detector", "every": 15, "detector": {"name": "page_hinkley", "threshold": 1}}
AVOIDABLE: Final[Block] = {"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}

#: Variants of each kind of trigger block.
TRIGGERS: Final[dict[str, Block]] = {
    "amount": AMOUNT,
    "amount of labels": AMOUNT | {"every": 12, "count": "labels"},
    "time": {"kind": "time", "every": "1d", "start": "2024-01-01"},
    "drift": DRIFT,
    "performance": PERFORMANCE,
    "performance waiting": PERFORMANCE | {"min_coverage": 0.5},
    "performance avoidable": PERFORMANCE | {"decision": AVOIDABLE},
    "performance estimated": PERFORMANCE | {"label_free": True},
    "detector of scores": DETECTOR | {"stream": "scores"},
    "detector of errors": DETECTOR,
    "cost of latency": COST | {"signal": "latency", "regret_per_training_second": 1e5},
    "cost of errors": COST | {"signal": "misclassifications", "regret_per_training_second": 5},
    "ensemble": {"kind": "ensemble", "rule": "any", "policies": {"drift": DRIFT, "performance": PERFORMANCE, "amount": AMOUNT}},
    "budget": {"kind": "budget", "policy": PERFORMANCE, "per": "2d", "triggers": 2},
    "budget of samples": {"kind": "budget", "policy": AMOUNT, "per": "2d", "samples": 60},
    "cooldown": {"kind": "cooldown", "policy": PERFORMANCE, "samples": 30},
    "minimum_samples": {"kind": "minimum_samples", "policy": PERFORMANCE, "samples": 30},
    "custom": {"kind": "custom", "factory": f"{user_policies.__name__}:EveryNth", "config": {"every": 50}},
}

DECAY: Final[Block] = {"keep": 0.5, "after": "1d"}
#: Variants of each kind of strategy.
STRATEGIES: Final[dict[str, Block]] = {
    "all": {"kind": "all"},
    "uniform": {"kind": "uniform", "ratio": 0.5},
    "uniform_without_replacement": {"kind": "uniform_without_replacement", "size": 30},
    "balanced": {"kind": "balanced", "size": 30},
    "balanced over triggers": {"kind": "balanced", "by": "trigger", "size": 30, "filling": "exact"},
    "freshness": {"kind": "freshness", "unused": 0.75, "size": 30},
    "weighted": {"kind": "weighted", "expression": f"{__name__}:by_place", "size": 30},
    "rtbs": {"kind": "rtbs", "n": 50, "decay": DECAY},
    "rtbs reset": {"kind": "rtbs", "n": 50, "decay": DECAY, "reset": "after_trigger"},
    "rtbs unbiased": {"kind": "rtbs", "n": 50, "decay": DECAY, "weights": "unbiased"},
    "rtbs in shards": {"kind": "rtbs", "n": 50, "decay": DECAY, "shards": 3},
    "ttbs": {"kind": "ttbs", "n": 50, "decay": DECAY, "mean_batch_size": 40},
    "btbs": {"kind": "btbs", "decay": {"rate": 0.3, "per": "1d"}},
    "btbs unbiased": {"kind": "btbs", "decay": {"rate": 0.3, "per": "1d"}, "weights": "unbiased"},
    "uniform_reservoir": {"kind": "uniform_reservoir", "n": 50, "weights": "unbiased"},
    "sliding_window": {"kind": "sliding_window", "n": 60},
    "sliding_window in time": {"kind": "sliding_window", "span": "2d"},
    "gdumb": {"kind": "gdumb", "n": 30},
    "gdumb reset": {"kind": "gdumb", "n": 30, "reset": "after_trigger"},
    "clib": {"kind": "clib", "n": 30},
    "gss": {"kind": "gss", "n": 30},
    "mir": {"kind": "mir", "n": 30, "k": 20},
    "similar_to_unlabelled": {"kind": "similar_to_unlabelled", "size": 30, "unlabelled": 20},
    "custom": {"kind": "custom", "factory": f"{tiny_strategies.__name__}:of_every_class", "size": 30},
    "custom of uses": {"kind": "custom", "factory": f"{tiny_strategies.__name__}:least_used", "size": 30, "usage": True},
    "sql": {"kind": "sql", "statement": f"{tiny_strategies.__name__}:balanced", "size": 30},
}
#: Strategies of which only one backend has what they ask for.
ONE_BACKEND: Final = ("weighted", "weighted by label", "sql", "sql by label")


#: Mark of variants whose window holds the samples that got their label in it.
BY_LABEL: Final = " by label"
#: Windows of such variants: two stretches for strategies, one for triggers, whose sizes and calibration follow from it.
_WINDOWS: Final = {True: "since_last_trigger", False: {"last_triggers": 2}}


def by_place(sample: Any) -> sa.ColumnElement[float]:
    """Weights by the place of a sample in its batch, an expression of the strategy ``weighted``."""
    return sa.cast(1 + sample.key % 7, sa.Double)


def kinds_of(union: Any) -> set[str]:
    """The kinds in a union of specs."""
    return set(TypeAdapter(union).json_schema()["discriminator"]["mapping"])


TRIGGER_KINDS: Final = kinds_of(TriggerSpec)
STRATEGY_KINDS: Final = kinds_of(Strategy)


def pipeline_of(variant: str, name: str = "late", backend: str = "arrow") -> Content:
    """A pipeline with a variant of a trigger block or of a strategy, scored as known on all models and intervals."""
    if variant.endswith(BY_LABEL):
        base = variant.removesuffix(BY_LABEL)
        content = pipeline_of(base, name, backend)
        content.setdefault("selection", {}).update(window_by="label", window=_WINDOWS[base in TRIGGERS])
        return content
    if variant in TRIGGERS:
        content = triggered(name, TRIGGERS[variant])
    else:
        strategy = STRATEGIES[variant]
        online = variant not in ("all", "weighted") and "size" not in strategy and "ratio" not in strategy
        selection: Block = {"strategy": strategy, "backend": "postgres" if variant in ONE_BACKEND else backend}
        content = amount(name, every=45, selection=selection | ({} if online else {"window": "all"}))
    content["training"]["epochs"] = 1
    content["evaluation"]["metrics"] = ["accuracy", "log_loss", "estimated_accuracy"]
    return content


def _is_possible(variant: str) -> bool:
    """False for a strategy whose window cannot go by label."""
    try:
        PipelineSpec.model_validate(pipeline_of(variant))
    except ValidationError:
        return False
    return True


#: Triggers that look at windows of the selection, or train up to another key than that of their point.
_OF_WINDOWS: Final = ("time", "performance avoidable", "performance estimated", "cost of latency", "budget of samples")
#: Variants where labels arrive later.
POLICIES: Final = (*TRIGGERS, *(f"{each}{BY_LABEL}" for each in _OF_WINDOWS))
SELECTIONS: Final = (*STRATEGIES, *filter(_is_possible, (f"{each}{BY_LABEL}" for each in STRATEGIES)))
#: Variants that are refused where labels arrive with their samples.
ONLY_LATE: Final = (
    "similar_to_unlabelled",
    "amount of labels",
    *(variant for variant in (*POLICIES, *SELECTIONS) if variant.endswith(BY_LABEL)),
)
