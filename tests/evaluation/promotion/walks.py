"""Walks of a gate along streams in memory: every look with the state before and after, and random ones for laws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from modyn_dagster.evaluation.promotion.gate import GateRules, look_at_batch
from modyn_dagster.evaluation.promotion.state import Change, GateState
from modyn_dagster.spec.promotion.gate import PromotionSpec
from tests.evaluation.promotion.memory import MemoryEvidence, Stream, stream_of


@dataclass(frozen=True)
class Look:
    """A look at a batch."""

    batch: int
    before: GateState
    after: GateState
    changes: Sequence[Change]
    evidence: MemoryEvidence


@dataclass(frozen=True)
class Walk:
    """All looks of a gate at a stream."""

    rules: GateRules
    stream: Stream
    looks: Sequence[Look]

    @property
    def changes(self) -> list[Change]:
        return [change for each in self.looks for change in each.changes]

    @property
    def end(self) -> GateState:
        return self.looks[-1].after

    def moves(self, trigger: int) -> list[str]:
        """States of a model in order."""
        return [change.state for change in self.changes if change.trigger == trigger]


def rules_of(metric: str = "accuracy", **promotion: Any) -> GateRules:
    return GateRules(PromotionSpec.model_validate(promotion), metric)


def walked(rules: GateRules, stream: Stream) -> Walk:
    """Look at every batch of a stream."""
    state, looks = GateState(), []
    for batch in range(stream.n_batches):
        evidence = MemoryEvidence(stream, batch)
        after, changes = look_at_batch(rules, state, batch - 1, evidence)
        looks.append(Look(batch, state, after, changes, evidence))
        state = after
    return Walk(rules, stream, looks)


def sure(**promotion: Any) -> GateRules:
    """Rules that need little evidence."""
    return rules_of(**({"confidence": 0.5, "min_samples": 5} | promotion))


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Streams with models of any quality; labels may be late or never come, models may be withdrawn or lost."""
    sizes = draw(st.lists(st.integers(0, 60), min_size=8, max_size=18))
    births = sorted(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=9)))
    models = [(born, draw(st.sampled_from([0.05, 0.5, 0.7, 0.95]))) for born in births]
    late, never = draw(st.sampled_from([0.0, 0.4])), draw(st.sampled_from([0.0, 0.3]))
    options: dict[str, Any] = {
        "seed": draw(st.integers(0, 99)),
        "late": late,
        "never": never,
        "maturity": draw(st.integers(0, 2)),
    }
    stream = stream_of(sizes, models, **options)
    made = list(stream.models)
    for field in ("withdrawn", "lost"):
        for number in draw(st.lists(st.integers(0, len(made) - 1), max_size=2)):
            changed: dict[str, Any] = {field: draw(st.integers(made[number].born, len(sizes)))}
            made[number] = replace(made[number], **changed)
    return replace(stream, models=tuple(made))


@st.composite
def rules(draw: st.DrawFn) -> GateRules:
    """Rules with any of their parts."""
    test = draw(st.sampled_from(["confidence_sequence", "confidence_sequence", "mcnemar"]))
    promotion: dict[str, Any] = {
        "test": test,
        "confidence": draw(st.sampled_from([0.3, 0.6, 0.95])),
        "min_samples": draw(st.sampled_from([1, 20])),
        "min_coverage": draw(st.sampled_from([0.0, 0.6])),
        "window": draw(st.sampled_from([None, "1d", "3d"])),
        "margin": draw(st.sampled_from([0.0, 0.1])) if test != "mcnemar" else 0.0,
        "approve": draw(st.sampled_from(["automatic", "automatic", "manual"])),
        "shadow": {
            "for": draw(st.sampled_from([None, "4d"])),
            "samples": draw(st.sampled_from([None, 90])),
            "max": draw(st.integers(1, 3)),
        },
        "guardrails": {"metrics": draw(st.sampled_from([[], [{"metric": "f1", "max_drop": 0.1, "slice": "group"}]]))},
    }
    back = draw(st.sampled_from([None, {"below": 0.6}, {"max_drop": 0.05}]))
    if back is not None:
        promotion["rollback"] = back | {"intervals": draw(st.integers(1, 3)), "min_samples": 5, "cool_down": "3d"}
    return rules_of(**promotion)


#: Walks of any gate along any stream.
WALKS = st.builds(walked, rules(), streams())
