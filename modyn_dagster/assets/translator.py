"""Appearance of specs in Dagster: the one place to change keys, groups, owners and descriptions."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg

from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat
from modyn_dagster.spec.load import spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.values.digest import json_digest

DatasetAsset = Literal["samples", "labels", "comparison"]
TriggerAsset = Literal["training_set", "model", "evaluation"]
PipelineAsset = TriggerAsset | Literal["replay", "measurement", "champion"]


@dataclass(frozen=True, slots=True)
class AssetProps:
    """One asset of ours: which it is, and of what.

    Attributes:
        asset, dataset: name of the asset, and the dataset that it belongs to or is made from.
        pipeline: None for the assets of a dataset.
        source: file of the spec; None where it is not known.
    """

    asset: DatasetAsset | PipelineAsset
    dataset: DatasetSpec
    pipeline: PipelineSpec | None = None
    source: Path | None = None

    @property
    def owner_spec(self) -> DatasetSpec | PipelineSpec:
        """The spec the asset belongs to."""
        return self.dataset if self.pipeline is None else self.pipeline


_TEXTS: Final[Mapping[str, str]] = {
    "samples": "Samples of the dataset, one partition per batch: their keys, times and labels in Postgres, their bytes in files.",
    "labels": "Labels that arrive after their samples, one partition per label batch: known, corrected, or waiting for a sample.",
    "comparison": "The pipelines of the dataset side by side: triggers, cost, and score over time.",
    "training_set": "Keys and weights of the samples that the selection policy chose, one partition per trigger.",
    "model": "The model trained on the training set, one partition per trigger.",
    "evaluation": "How good the model is, interval by interval, on every evaluation sample so far; one partition per trigger.",
    "measurement": "What the triggering policy wants to know before it decides: drift between windows, the newest model's "
    "performance, and the decisions that follow, one partition per batch. The sensor asks for it; replays show theirs here too.",
    "champion": "The model that the gate of the live run, or a person, has made the champion (of the newest replay where the "
    "pipeline was never live): a materialization per change, with "
    "trigger, reason, actor, the numbers of the test, and what was live when. Assets of other projects may depend on it.",
    "replay": "Experiment mode: select a range of batches and launch a backfill. One run walks them in order, decides, "
    "trains and evaluates as production would have. Launched again, it continues.",
}

_KINDS: Final[Mapping[str, Callable[[AssetProps], set[str]]]] = {
    "samples": lambda props: {"postgres", props.dataset.format.kind},
    "labels": lambda _: {"arrow"},
    "comparison": lambda _: {"matplotlib"},
    "training_set": lambda _: {"arrow"},
    "model": lambda _: {"pytorch", "mlflow"},
    "evaluation": lambda _: {"pytorch", "mlflow"},
    "measurement": lambda _: {"pytorch", "postgres"},
    "champion": lambda _: {"pytorch", "postgres"},
    "replay": lambda _: {"pytorch", "mlflow"},
}


class ModynTranslator:
    """Turns an asset of a dataset or pipeline into a Dagster ``AssetSpec``.

    Override ``get_asset_spec`` to change what Dagster shows; keys may change too, dependencies follow them.

    Examples
    --------
    >>> class Prefixed(ModynTranslator):
    ...     def get_asset_spec(self, props: AssetProps) -> dg.AssetSpec:
    ...         spec = super().get_asset_spec(props)
    ...         return spec.replace_attributes(key=spec.key.with_prefix("modyn"))
    """

    def get_asset_spec(self, props: AssetProps) -> dg.AssetSpec:
        """Key, group, kinds, owners, description, tags, version, freshness, columns and source.

        Partitions and dependencies are added afterwards.
        """
        spec = props.owner_spec
        return dg.AssetSpec(
            [spec.name, props.asset],
            group_name=_group(props),
            kinds=_KINDS[props.asset](props),
            owners=spec.owners,
            description="\n\n".join(filter(None, [_TEXTS[props.asset], spec.description])),
            tags=None if props.pipeline is None else props.pipeline.display.tags,
            code_version=_code_version(props),
            freshness_policy=_freshness_policy(props),
            metadata=_column_schema(props) | _code_reference(props),
        )


def _group(props: AssetProps) -> str:
    if props.asset == "comparison":
        # Of its own: the pipelines follow the samples, and it follows the pipelines.
        return f"{props.dataset.name}_comparison"
    if props.pipeline is None:
        return props.dataset.name
    return props.pipeline.display.group or props.pipeline.name


#: Fields of a dataset that change none of its samples.
_SHOWN_ONLY: Final = {"description", "owners", "sensor_interval", "freshness", "storage_options"}
#: Dagster has no freshness policy of a shorter time.
_SHORTEST_FRESHNESS: Final = 60


def _code_version(props: AssetProps) -> str | None:
    """Digest of what decides an asset's content: the dataset's spec, or the behaviour of the pipeline as runs identify it."""
    if props.pipeline is not None:
        return spec_hash(props.pipeline)
    if props.asset == "comparison":
        return None
    return json_digest(props.dataset.model_dump(mode="json", exclude=_SHOWN_ONLY, by_alias=True))


def _freshness_policy(props: AssetProps) -> dg.FreshnessPolicy | None:
    """Policy of samples whose dataset says how old its newest batch may be; the check ``fresh`` judges by the same time."""
    if props.asset != "samples" or props.dataset.freshness is None:
        return None
    seconds = seconds_of(props.dataset.freshness.maximum)
    return dg.FreshnessPolicy.time_window(timedelta(seconds=seconds)) if seconds >= _SHORTEST_FRESHNESS else None


#: Columns of the files and tables whose form does not depend on the data.
_COLUMNS: Final[Mapping[str, list[tuple[str, str, str]]]] = {
    "training_set": [
        ("key", "uint64", "sample, as `modyn-dagster dataset` and the catalog name it"),
        ("weight", "float32", "weight of the sample in the loss"),
        ("chance", "float32", "probability with which it was included, where that does not follow from the weight"),
    ],
    "evaluation": [
        ("interval_start", "timestamp", "start of the interval of sample time"),
        ("interval_end", "timestamp", "its end, exclusive"),
        ("subset", "string", "slice, empty for all samples"),
        ("metric", "string", "name of the metric"),
        ("n_samples", "int64", "samples that were scored"),
        ("value", "float64", "score, absent where it is undefined"),
    ],
}


def _column_schema(props: AssetProps) -> dict[str, Any]:
    """Columns as far as specs know them; a batch shows those that its dataset was ingested with."""
    columns = [dg.TableColumn(*column) for column in _COLUMNS.get(props.asset, [])]
    if props.asset == "samples":
        columns = [dg.TableColumn(name, dtype) for name, dtype in _declared(props.dataset)]
    return {"dagster/column_schema": dg.TableSchema(columns)} if columns else {}


def _declared(dataset: DatasetSpec) -> list[tuple[str, str]]:
    match dataset.format:
        case FixedRowsFormat(dtype=fields):
            return list(fields)
        case CsvFormat(columns=columns) | JsonlFormat(columns=columns):
            return list(columns.items())
        case _:
            return []


def _code_reference(props: AssetProps) -> dict[str, Any]:
    """The file of the spec, which a person opens to change the asset."""
    if props.source is None:
        return {}
    with warnings.catch_warnings():
        # Code references are in beta in Dagster 1.13.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(props.source), line_number=1, label=props.source.name)
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
