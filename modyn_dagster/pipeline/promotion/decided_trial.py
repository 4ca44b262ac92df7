"""Test that made a model the champion, taken again from stored predictions: its bounds along the stream, for a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from modyn_dagster.catalog.results.promotions import PromotionRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.evaluation.paired.bounded_losses import paired_differences
from modyn_dagster.evaluation.paired.comparison import PairedResult, PairedTest
from modyn_dagster.evaluation.paired.confidence_sequence import bounds_path
from modyn_dagster.evaluation.paired.verdict import PairedVerdict
from modyn_dagster.evaluation.promotion.evidence import Pairs
from modyn_dagster.evaluation.promotion.gate import GateRules
from modyn_dagster.evaluation.promotion.history import deciding_event, live_periods
from modyn_dagster.evaluation.promotion.state import Trial
from modyn_dagster.evaluation.promotion.trials import begin_trial, renewed, window_pairs
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.evidence import BatchEvidence, RunModels
from modyn_dagster.pipeline.promotion.gate_walk import rules_of
from modyn_dagster.pipeline.promotion.predictions import GatePredictions


@dataclass(frozen=True, slots=True)
class DecidedTrial:
    """A test that a candidate has passed.

    Attributes:
        candidate, incumbent: events that made the two the champion.
        test: settings, with the confidence that was left to this test.
        result: verdict as recorded, and the path of its bounds where the test has one.
        scores: metric of candidate and incumbent on the pairs; None where it is undefined.
    """

    candidate: PromotionRow
    incumbent: PromotionRow
    test: PairedTest
    result: PairedResult
    scores: tuple[float | None, float | None]


def decided_trial(platform: Platform, run: RunRow, events: Sequence[PromotionRow], champion: PromotionRow) -> DecidedTrial | None:
    """Read the pairs of a test again; None for a champion that no test made, or where a deletion has changed a model.

    Samples that were deleted since are left out, so there may be fewer pairs than the verdict counts.

    Args:
        platform: the project.
        run: with a gate.
        events: of the run, in order.
        champion: one of them.

    Raises:
        RunError: retention has removed predictions and their model.
        CorruptFile: a file of predictions is damaged.
    """
    decided, rules = deciding_event(events, champion), rules_of(platform.recorded_spec(run))
    if decided is None or decided.verdict is None or rules is None:
        return None
    begun = [
        each for each in events if each.number < decided.number and (each.ordinal, each.state) == (decided.ordinal, "shadow")
    ]
    periods = live_periods(events[: begun[-1].number]) if begun else []
    models = RunModels.read(platform, run, platform.view_of(run))
    if not periods or any(models.hash_of(each.ordinal) != each.model_hash for each in (decided, periods[-1].began)):
        return None
    incumbent, predictions = periods[-1].began, GatePredictions(ahead=False)
    evidence = BatchEvidence(models, predictions, decided.batch)
    trial = _trial(rules, models, begun[-1].batch, decided.batch, incumbent.ordinal)
    pairs = window_pairs(decided.ordinal, trial, evidence)
    verdict = PairedVerdict.of_json(decided.verdict)
    test = PairedTest(
        rules.metric,
        rules.spec.test,
        rules.spec.margin,
        verdict.confidence,
        rules.spec.min_samples,
        bound=rules.spec.bound,
        block=rules.spec.block,
    )
    return DecidedTrial(champion, incumbent, test, _result(test, verdict, pairs), _scores(test, pairs))


def _trial(rules: GateRules, models: RunModels, begun: int, until: int, incumbent: int) -> Trial:
    """Test with the window of evidence that it had reached."""
    predictions = GatePredictions(ahead=False)
    trial = begin_trial(1, incumbent, BatchEvidence(models, predictions, begun))
    for batch in [each.ordinal for each in models.view.batches if begun < each.ordinal < until]:
        trial = renewed(rules.spec, trial, BatchEvidence(models, predictions, batch))
    return trial


def _result(test: PairedTest, verdict: PairedVerdict, pairs: Pairs) -> PairedResult:
    if test.test != "confidence_sequence" or len(pairs) == 0:
        return PairedResult(verdict, None)
    found = paired_differences(test.metric, pairs.candidate, pairs.incumbent, pairs.truth, bound=test.bound)
    return PairedResult(verdict, bounds_path(found.values, alpha=1 - test.confidence, unit=found.unit))


def _scores(test: PairedTest, pairs: Pairs) -> tuple[float | None, float | None]:
    if len(pairs) == 0:
        return None, None
    ours, theirs = (score(test.metric, outputs, pairs.truth).value for outputs in (pairs.candidate, pairs.incumbent))
    return ours, theirs
