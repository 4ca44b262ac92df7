"""Metadata of a materialization of ``<pipeline>/champion``, and the result of its check with the picture of the test."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.batches import time_text
from modyn_dagster.assets.metadata.entries import REASON, details, in_order, rounded
from modyn_dagster.catalog.results.promotions import PromotionRow
from modyn_dagster.values.digest import json_digest

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.promotion.live_history import LiveHistory

#: Names in the details of a materialization by which the last change that is shown is found again.
RUN: Final = "run_id"
EVENT: Final = "event"
#: Name in the details of a materialization or observation of a digest of the periods that it shows.
HISTORY: Final = "history"
#: Periods in the table; the report and ``model history`` have all.
_MOST_PERIODS: Final = 30


def champion_metadata(
    platform: "Platform", run: "RunRow", events: Sequence[PromotionRow], change: PromotionRow
) -> dict[str, Any]:
    """Metadata of a change of the champion.

    Args:
        platform: the project.
        run: the live run.
        events: of its gate, in order.
        change: one of them, at which a model became the champion.
    """
    from modyn_dagster.evaluation.promotion.history import deciding_event
    from modyn_dagster.reporting.promotion.live_history import read_history

    with platform.transaction() as conn:
        history = read_history(conn, run, until=change.number)
    metadata: dict[str, Any] = {
        "Champion": change.model_hash[:12],
        "From": time_text(change.time),
        REASON: change.reason,
        "Trigger": change.partition_key,
        "Who": change.actor,
        **_numbers(deciding_event(events, change)),
    }
    names = {"run": run.title, RUN: run.id, EVENT: change.number, "model": change.model_hash, "clock": str(change.created_at)}
    if history is not None:
        metadata["what was live when"] = _live_markdown(history)
        names[HISTORY] = history_digest(run, history)
    return in_order(metadata) | details(names)


def score_metadata(run: "RunRow", history: "LiveHistory") -> dict[str, Any]:
    """Metadata of an observation of the champion: its score until now, to plot over time, and what was live when.

    Args:
        run: the live run.
        history: its promotions, with a champion.
    """
    now = history.periods[-1]
    metadata: dict[str, Any] = {"Champion": now.period.began.model_hash[:12], "Trigger": now.period.began.partition_key}
    if now.score is not None:
        metadata["Score then"] = rounded(now.score)
    metadata |= {"intervals": now.n_intervals, "what was live when": _live_markdown(history)}
    return in_order(metadata) | details({"run": run.title, RUN: run.id, HISTORY: history_digest(run, history)})


def history_digest(run: "RunRow", history: "LiveHistory") -> str:
    """Digest of the champions of a run, with their scores."""
    return json_digest([run.id, [each.to_json() for each in history.periods]])


def _live_markdown(history: "LiveHistory") -> dg.MetadataValue[Any]:
    from modyn_dagster.reporting.promotion.tables import live_table

    return dg.MetadataValue.md(live_table(history, most=_MOST_PERIODS).markdown())


def champion_check(
    key: dg.AssetKey, platform: "Platform", run: "RunRow", events: Sequence[PromotionRow], change: PromotionRow
) -> dg.AssetCheckEvaluation:
    """Result of the check ``better_by_test`` of a champion, with the numbers and the picture of the test where there was one."""
    from modyn_dagster.evaluation.promotion.history import deciding_event
    from modyn_dagster.evaluation.promotion.state import DELETION, ROLLBACK

    decided, untested = deciding_event(events, change), change.actor in (ROLLBACK, DELETION)
    metadata = {"trigger": change.partition_key, "who": change.actor, "reason": change.reason}
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name="better_by_test",
        passed=not untested,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"No test made this model the champion: {change.reason}" if untested else _sentence(decided, change),
        blocking=False,
        metadata=metadata | _numbers(decided) | _picture(platform, run, events, change),
    )


def _sentence(decided: PromotionRow | None, change: PromotionRow) -> str:
    if not change.manual:
        return change.reason
    if decided is not None:
        return f"{change.actor} approved it ({change.reason}): {decided.reason}"
    return f"{change.actor} chose it, without a test that it passed: {change.reason}"


def _numbers(decided: PromotionRow | None) -> dict[str, Any]:
    """Numbers of a verdict, to plot over the changes; none where there is none."""
    if decided is None or decided.verdict is None:
        return {}
    verdict, bounds = decided.verdict, decided.verdict["bounds"]
    numbers: Mapping[str, float | None] = {
        "pairs": verdict["n"],
        "difference": verdict["difference"],
        "lower_bound": None if bounds is None else bounds["lower"],
        "upper_bound": None if bounds is None else bounds["upper"],
        "margin": verdict["margin"],
        "confidence": verdict["confidence"],
    }
    return {name: value if name == "pairs" else rounded(value) for name, value in numbers.items() if value is not None}


def _picture(platform: "Platform", run: "RunRow", events: Sequence[PromotionRow], change: PromotionRow) -> dict[str, Any]:
    """Picture of the test; a sentence where its predictions cannot be read any more, which is no fault of the champion."""
    from modyn_dagster.errors import CatalogError, ModynError
    from modyn_dagster.pipeline.promotion.decided_trial import decided_trial
    from modyn_dagster.reporting.paired_comparison import ModelComparison
    from modyn_dagster.reporting.plots.figures import as_markdown
    from modyn_dagster.reporting.plots.paired_bounds import paired_bounds

    try:
        trial = decided_trial(platform, run, events, change)
    except CatalogError:
        raise
    except ModynError as error:
        return {"test": f"no picture: {error}"}
    if trial is None:
        return {}
    titles = [f"{each.partition_key} ({each.model_hash[:12]})" for each in (trial.candidate, trial.incumbent)]
    comparison = ModelComparison(f"{run.pipeline} {titles[0]}", titles[1], trial.test, trial.result, trial.scores)
    return {"test": dg.MetadataValue.md(as_markdown(paired_bounds(comparison)))}
