"""Test of one candidate: it takes the pairs of a look, keeps a few numbers of them, and gives its verdict."""

from dataclasses import replace
from typing import NamedTuple

from modyn_dagster.evaluation.paired.block_bootstrap import bootstrap_verdict
from modyn_dagster.evaluation.paired.bounded_losses import paired_differences
from modyn_dagster.evaluation.paired.confidence_sequence import DifferenceState, confidence_verdict
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState, mcnemar_verdict
from modyn_dagster.evaluation.paired.spending import alpha_of_candidate, spent_alpha
from modyn_dagster.evaluation.paired.verdict import PairedVerdict, undecided
from modyn_dagster.evaluation.promotion.evidence import Evidence, Pairs
from modyn_dagster.evaluation.promotion.state import MICROSECONDS, Trial
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.promotion.gate import PromotionSpec


class Looked(NamedTuple):
    """A test after a look, and its verdict."""

    trial: Trial
    verdict: PairedVerdict


def begin_trial(number: int, champion: int, evidence: Evidence) -> Trial:
    """Begin a test after a batch: only samples that arrive later count."""
    begun, since = evidence.batch, evidence.time
    return Trial(number, champion, evidence.last_key, begun, since, 1, begun, since)


def look(rules: PromotionSpec, metric: str, candidate: int, trial: Trial, since: int, evidence: Evidence) -> Looked:
    """Take the pairs that have entered since a batch, and judge all of the window.

    The k-th test of a gate has the share ``alpha / (k (k + 1))`` of its error probability, its j-th window that share of the
    test's. So the run as a whole promotes a model that is not better by the margin with at most ``1 - confidence``.

    Args:
        rules: of the gate.
        metric: that decides.
        candidate: ordinal of the candidate's trigger.
        trial: the test so far.
        since: ordinal of the batch of the last look.
        evidence: after this batch.
    """
    alpha = spent_alpha(alpha_of_candidate(trial.number, 1 - rules.confidence), trial.window)
    entered = evidence.pairs(candidate, trial.champion, trial.after, trial.begun, since)
    trial = replace(trial, n=trial.n + len(entered))
    covered = evidence.coverage(candidate, trial.after)
    if rules.test == "block_bootstrap":
        looked = _bootstrap(rules, metric, candidate, trial, evidence, alpha, open_=covered < rules.min_coverage)
    else:
        looked = _counted(rules, metric, trial, entered, alpha, open_=covered < rules.min_coverage)
    if covered < rules.min_coverage:
        verdict = looked.verdict
        reason = f"{covered:.1%} of the mature samples have a label, below min_coverage {rules.min_coverage:g}"
        return Looked(looked.trial, undecided(reason, verdict.n, margin=verdict.margin, confidence=verdict.confidence))
    return looked


def renewed(rules: PromotionSpec, trial: Trial, evidence: Evidence) -> Trial:
    """Return an undecided test after a look: with a new window, for pairs that enter later, where the present one is over.

    A window ends with the look that reaches its length, so each pair belongs to exactly one, however late its label comes.
    """
    if rules.window is None or trial.window_since is None or evidence.time is None:
        return trial
    if evidence.time - trial.window_since < seconds_of(rules.window) * MICROSECONDS:
        return trial
    here = {"window_begun": evidence.batch, "window_since": evidence.time}
    return replace(trial, window=trial.window + 1, looks=0, numbers={}, **here)


def window_pairs(candidate: int, trial: Trial, evidence: Evidence) -> Pairs:
    """Return all pairs of the present window of a test."""
    return evidence.pairs(candidate, trial.champion, trial.after, trial.begun, trial.window_begun)


def _counted(rules: PromotionSpec, metric: str, trial: Trial, entered: Pairs, alpha: float, *, open_: bool) -> Looked:
    """Look of a test that keeps counts or sums. One that decides nothing, for want of pairs or labels, spends no error."""
    differences, unit = _differences(rules, metric, entered)
    if rules.test == "mcnemar":
        counts = DiscordantState.of_json(trial.numbers) if trial.numbers else DiscordantState()
        counts = counts.updated(differences)
        verdict, looked = mcnemar_verdict(counts, alpha=alpha, min_samples=rules.min_samples)
        if open_ or counts.n < rules.min_samples:
            looked = counts
        return Looked(replace(trial, numbers=looked.to_json(), looks=looked.looks), verdict)
    state = DifferenceState.of_json(trial.numbers) if trial.numbers else DifferenceState()
    unit = unit if unit is not None else float(trial.numbers.get("unit", 1.0))
    state = state.updated(differences)
    verdict = confidence_verdict(state, alpha=alpha, margin=rules.margin, unit=unit, min_samples=rules.min_samples)
    return Looked(replace(trial, numbers=state.to_json() | {"unit": unit}, looks=trial.looks + 1), verdict)


def _differences(rules: PromotionSpec, metric: str, entered: Pairs) -> tuple[list[float], float | None]:
    if len(entered) == 0:
        return [], None
    found = paired_differences(metric, entered.candidate, entered.incumbent, entered.truth, bound=rules.bound)
    return found.values.tolist(), found.unit


def _bootstrap(
    rules: PromotionSpec, metric: str, candidate: int, trial: Trial, evidence: Evidence, alpha: float, *, open_: bool
) -> Looked:
    """Look at all pairs of the window; one below ``min_samples`` or ``min_coverage`` spends no error."""
    pairs = window_pairs(candidate, trial, evidence)
    if open_ or len(pairs) < rules.min_samples:
        reason = f"{len(pairs):,} samples, at least {rules.min_samples:,} are needed"
        return Looked(trial, undecided(reason, len(pairs), margin=rules.margin, confidence=1 - alpha))
    trial = replace(trial, looks=trial.looks + 1)
    verdict = bootstrap_verdict(
        metric,
        pairs.candidate,
        pairs.incumbent,
        pairs.truth,
        alpha=alpha,
        margin=rules.margin,
        look=trial.looks,
        min_samples=rules.min_samples,
        block=rules.block,
    )
    return Looked(trial, verdict)
