"""Label files among the sample batches of a bulk import: each arrives once the stream has reached its newest label."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.registration.batches import Announcement, known_label_paths
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.import_plan import times_of_units
from modyn_dagster.ingestion.labels.read_labels import newest_time
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass
class ImportStep:
    """Sample batches in their order, then label batches that arrive together."""

    samples: list[Announcement] = field(default_factory=list)
    labels: list[Announcement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """First and last time of the samples of a batch; NaT where it is not known."""

    first: np.datetime64
    last: np.datetime64


def interleaved(
    engine: sa.Engine, source: Source, spec: DatasetSpec, samples: Sequence[Announcement], label_root: str | None
) -> list[ImportStep]:
    """Order in which new sample batches and new label files arrive.

    Args:
        engine: of the ``modyn`` database.
        source: of the samples.
        spec: of the dataset.
        samples: new batches, in order.
        label_root: folder or URL of the label files; None: leave them out.
    """
    if label_root is None or spec.label is None or spec.label.files is None:
        return [ImportStep(list(samples))]
    label_source, rows = open_source(label_root, spec.storage_options), spec.label_rows()
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        known = known_label_paths(conn, dataset.id)
    labels = [announce(rows, unit) for unit in find_units(label_source, rows) if unit not in known]
    if not labels or not samples:
        return [ImportStep(list(samples), labels)]
    spans = _spans(source, spec, dataset, samples)
    places = places_in_stream(spans, [_newest(label_source, spec, dataset, item) for item in labels])
    steps = [ImportStep()]
    for position in range(len(samples) + 1):
        here = [item for item, place in zip(labels, places, strict=True) if place == position]
        steps[-1].labels += here
        if here:
            steps.append(ImportStep())
        steps[-1].samples += samples[position : position + 1]
    return steps


def places_in_stream(spans: Sequence[TimeSpan], newest: Sequence[np.datetime64]) -> list[int]:
    """Number of sample batches that arrive before each label file.

    A file follows the first batch with which the stream reaches the newest time in it, and precedes a batch all of whose samples
    are later than that. A file that cannot be read arrives last.

    >>> day = lambda n: np.datetime64(f"2024-01-{n:02d}", "us")
    >>> places_in_stream([TimeSpan(day(1), day(3)), TimeSpan(day(6), day(8))], [day(2), day(5), day(7), day(9)])
    [1, 1, 2, 2]
    """
    places = []
    for moment in newest:
        place = len(spans)
        for i, span in enumerate(spans):
            before_next = i + 1 < len(spans) and spans[i + 1].first > moment
            if span.last >= moment or before_next:
                place = i + 1
                break
        places.append(len(spans) if np.isnat(moment) else place)
    return places


def _newest(source: Source, spec: DatasetSpec, dataset: DatasetRow, item: Announcement) -> np.datetime64:
    paths = item.source["paths"]
    try:
        with contained(paths[0]):
            return newest_time(source, spec, dataset, paths)
    except DataError:
        # Its own ingestion closes it as failed, with the reason.
        return np.datetime64("NaT", "us")


def _spans(source: Source, spec: DatasetSpec, dataset: DatasetRow, samples: Sequence[Announcement]) -> list[TimeSpan]:
    nothing = np.datetime64("NaT", "us")
    whole = [path for item in samples if "import" not in item.source for path in item.source["paths"]]
    _, times = times_of_units(source, spec, dataset, whole) if whole else (None, {})
    spans = []
    for item in samples:
        if "import" in item.source:
            # The end of a slice is not known, but the beginning of the next one is.
            spans.append(TimeSpan(np.datetime64(int(item.source["begin"][0]), "us"), nothing))
            continue
        found = [part for path in item.source["paths"] for part in times.get(path, {}).values() if len(part)]
        ends = (min(part.min() for part in found), max(part.max() for part in found)) if found else (nothing, nothing)
        spans.append(TimeSpan(*ends))
    return spans
