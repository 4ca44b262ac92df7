"""The form of what MLflow shows: one run's content, and how names, settings and texts have to look there."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.reporting.tracked_inputs import DataInput
from modyn_dagster.reporting.tracked_points import Series, utc_text

#: What MLflow keeps of a parameter, its name and a tag.
_MOST_IN_KEY: Final = 250
_MOST_IN_PARAM: Final = 6000
_MOST_IN_TAG: Final = 8000
#: MLflow takes more, but not where a name could be read as a path.
_REFUSED_IN_KEY: Final = re.compile(r"[^\w\- ]", re.ASCII)


@dataclass(frozen=True)
class Content:
    """All that one MLflow run shows. ``identity`` are the tags that find it again; times are in milliseconds since 1970.

    ``defaults`` are tags for a run that lacks them. ``numbers`` are whatever they are now; ``params`` and ``series`` can
    only be added to.
    """

    name: str
    identity: Mapping[str, str]
    status: str
    start: int
    end: int | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    series: Series = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    inputs: Sequence[DataInput] = ()


@dataclass(frozen=True)
class DagsterRun:
    """The Dagster run that did what is shown, as far as it is known, and its page."""

    id: str | None = None
    url: str | None = None


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow parameters with dotted names; what is not text is JSON.

    >>> flatten({"trigger": {"kind": "amount", "every": 5}, "features": ["a"]})
    {'trigger.kind': 'amount', 'trigger.every': '5', 'features': '["a"]'}
    """
    flat: dict[str, str] = {}
    for name, value in values.items():
        key = prefix + (_REFUSED_IN_KEY.sub("_", name) or "_")
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[key[:_MOST_IN_KEY]] = text[:_MOST_IN_PARAM]
    return flat


def run_identity(run: RunRow) -> dict[str, str]:
    """Tags that find a pipeline run again."""
    # Ids begin again in another database, whose runs the same MLflow may show: the time of creation tells them apart.
    return {"modyn/run": str(run.id), "modyn/created": utc_text(run.created_at)}


def tags_of(tags: Mapping[str, str | None]) -> dict[str, str]:
    """Tags as MLflow keeps them, without those that are not known."""
    return {name: value[:_MOST_IN_TAG] for name, value in tags.items() if value is not None}


def note_of(parts: Sequence[str], url: str | None) -> dict[str, str]:
    """The description in MLflow's page. A later sync that does not know Dagster's page leaves the one that does."""
    link = f"[Dagster run]({url})" if url else ""
    return {"mlflow.note.content": "\n\n".join(filter(None, [*parts, link]))[:_MOST_IN_TAG]}
