"""Updates of an MLflow run: missing parameters, points and tags, and content that MLflow cannot take back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from modyn_dagster.reporting.mlflow.content import Content, log_missing_inputs
from modyn_dagster.reporting.mlflow.series import SERIES_PREFIXES, Point, Series, digest_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


T = TypeVar("T")

#: Limits of one call to MLflow.
_METRICS_PER_CALL: Final = 1000
_OTHERS_PER_CALL: Final = 100
_DIGEST: Final = "modyn/digest"


def update_run(client: MlflowClient, run: Run, content: Content, sent: Mapping[str, Series]) -> str | None:
    """Send the differences. None, with nothing sent, if the run has a parameter or point that is wrong: MLflow keeps those.

    Args:
        client: of MLflow.
        run: as it is in MLflow.
        content: as it is to be.
        sent: series that the run had earlier, by digest; where it still has that digest, its points are not read.

    Returns:
        The digest of the series.
    """
    digest = digest_of(content.series)
    same = run.data.tags.get(_DIGEST) == digest
    metrics = [] if same else _missing_points(client, run, content, sent.get(run.data.tags.get(_DIGEST, "")))
    if metrics is None or _contradicts(run.data.params, content.params):
        return None
    params = {name: value for name, value in content.params.items() if name not in run.data.params}
    metrics += _changed_numbers(run, content.numbers)
    log_missing_inputs(client, run, content.inputs)
    # Tags go last: the digest says that all points are in MLflow.
    _send(client, run.info.run_id, params, metrics, _changed_tags(run, content) | ({} if same else {_DIGEST: digest}))
    _set_status(client, run, content)
    return digest


def _missing_points(client: MlflowClient, run: Run, content: Content, sent: Series | None) -> list[tuple[str, Point]] | None:
    """Points to add; None if the run has points that it should not have."""
    if {name for name in run.data.metrics if name.startswith(SERIES_PREFIXES)} - content.series.keys():
        return None
    missing = []
    for name, points in content.series.items():
        present = _points(client, run, name) if sent is None else set(sent.get(name, ()))
        if present - set(points):
            return None
        missing += [(name, point) for point in points if point not in present]
    return missing


def _points(client: MlflowClient, run: Run, name: str) -> set[Point]:
    if name not in run.data.metrics:
        return set()
    history = client.get_metric_history(run.info.run_id, name)
    return {Point(metric.step, metric.timestamp, metric.value) for metric in history}


def _send(
    client: MlflowClient, run_id: str, params: Mapping[str, str], metrics: Sequence[tuple[str, Point]], tags: Mapping[str, str]
) -> None:
    from mlflow.entities import Metric, Param, RunTag

    points = [Metric(name, point.value, point.timestamp, point.step) for name, point in metrics]
    all_params, all_tags = [Param(*item) for item in params.items()], [RunTag(*item) for item in tags.items()]
    together = len(points) + len(all_params) + len(all_tags)
    if together <= _METRICS_PER_CALL and max(len(all_params), len(all_tags)) <= _OTHERS_PER_CALL:
        # A store takes parameters and metrics before tags.
        if together:
            client.log_batch(run_id, points, all_params, all_tags)
        return
    for some_params in _chunks(all_params, _OTHERS_PER_CALL):
        client.log_batch(run_id, params=some_params)
    for some_metrics in _chunks(points, _METRICS_PER_CALL):
        client.log_batch(run_id, metrics=some_metrics)
    for some_tags in _chunks(all_tags, _OTHERS_PER_CALL):
        client.log_batch(run_id, tags=some_tags)


def _set_status(client: MlflowClient, run: Run, content: Content) -> None:
    if run.info.status == content.status:
        return
    if content.end is not None:
        client.set_terminated(run.info.run_id, content.status, content.end)
    else:
        client.update_run(run.info.run_id, status=content.status)


def _contradicts(present: Mapping[str, str], params: Mapping[str, str]) -> bool:
    return any(present.get(name, value) != value for name, value in params.items())


def _changed_tags(run: Run, content: Content) -> dict[str, str]:
    present = run.data.tags
    tags = {**content.defaults, **present, **content.tags}
    # An empty tag means the same as no tag, and looks like an error without a text.
    return {name: value for name, value in tags.items() if present.get(name, "") != value}


def _changed_numbers(run: Run, numbers: Mapping[str, float]) -> list[tuple[str, Point]]:
    # MLflow shows the value with the latest time.
    now = time.time_ns() // 1_000_000
    return [(name, Point(0, now, value)) for name, value in numbers.items() if run.data.metrics.get(name) != value]


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
