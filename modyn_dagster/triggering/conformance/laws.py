"""The laws, one after the other, over generated streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modyn_dagster.errors import ConfigError, LawBroken
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.base import timedelta_of
from modyn_dagster.triggering.build import build_policy
from modyn_dagster.triggering.conformance.streams import GeneratedStream, generated_streams, other_batches
from modyn_dagster.triggering.conformance.trial import Make, Measure, RecordedDecision, Trial, synthetic_answers

_PREFIXES = 4


def check_policy(
    policy: Make | Mapping[str, Any],
    *,
    samples: int = 400,
    span: str = "2y",
    seed: int = 0,
    measure: Measure | None = None,
) -> None:
    """Check that a policy obeys the laws of triggering policies.

    1. Splitting the stream into other batches changes no decision.
    2. Saving and loading state through JSON changes none, at any point.
    3. Equal seeds agree: a fresh policy decides the same again.
    4. Decisions do not look ahead: those on a prefix of the stream are a prefix of those on the stream.

    Points and keys come in order besides, and state is JSON. Streams hold ties, gaps, late samples, empty batches and
    samples that are not for training; some trainings fail, and some triggers are made by hand.

    Args:
        policy: a function that returns a fresh policy (its class, if it takes no arguments), or a trigger block.
        samples: of each stream; enough for a few dozen decisions.
        span: of sample time that each stream covers, about; a few dozen times the durations the policy works with.
        seed: another one, other streams.
        measure: answers the policy's needs, given by path; default: numbers made up from each need.

    Raises:
        LawBroken: names the law, the stream and the first decision that differs.
        ConfigError: the policy decides nothing on these streams, so nothing was checked.
    """
    make = policy if callable(policy) else lambda: build_policy(policy)
    answers = synthetic_answers(seed) if measure is None else measure
    decided = 0
    for stream in generated_streams(samples, timedelta_of(span), seed):
        expected = Trial(make, stream, answers).run()
        decided += len(expected)
        _compare("equal seeds agree", stream, expected, Trial(make, stream, answers).run())
        for n in _prefixes(stream, expected, seed):
            shorter = Trial(make, stream.prefix(n), answers).run()
            before = [decision for decision in expected if decision.point < n]
            _compare("decisions do not look ahead", stream, before, shorter)
        for cut in _cuts(stream, seed):
            _compare("other batches change no decision", stream, expected, Trial(make, cut, answers).run())
        for every in (1, 3):
            restored = Trial(make, stream, answers, reload_every=every).run()
            _compare("saving and loading state changes no decision", stream, expected, restored)
    if not decided:
        raise ConfigError("check_policy", "samples", samples, f"no decision on any stream of {span}: take longer ones")


def _cuts(stream: GeneratedStream, seed: int) -> Iterator[GeneratedStream]:
    n = len(stream.times)
    yield stream.cut([n])
    yield stream.cut([1] * n)
    yield stream.cut(other_batches(n, rng_for(seed, "cut", stream.name)))


def _prefixes(stream: GeneratedStream, decisions: Sequence[RecordedDecision], seed: int) -> set[int]:
    """Lengths: some just long enough for a decision, some anywhere; none so short that the run has not begun."""
    rng = rng_for(seed, "prefix", stream.name)
    lengths = {int(n) for n in rng.integers(stream.origin + 1, len(stream.times) + 1, _PREFIXES)}
    if decisions:
        lengths |= {decisions[i].point + 1 for i in rng.integers(0, len(decisions), _PREFIXES)}
    return lengths


def _compare(law: str, stream: GeneratedStream, expected: Sequence[RecordedDecision], found: Sequence[RecordedDecision]) -> None:
    for ordinal, (before, now) in enumerate(zip(expected, found)):
        if before != now:
            raise LawBroken(law, stream.name, ordinal, f"expected {before}, found {now}")
    if len(expected) != len(found):
        ordinal = min(len(expected), len(found))
        more, which = (expected, "is missing") if len(expected) > len(found) else (found, "is one too many")
        raise LawBroken(law, stream.name, ordinal, f"{more[ordinal]} {which}")
