"""Appearance of specs in Dagster: the one place to change keys, groups, owners and descriptions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import dagster as dg

from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec

DatasetAsset = Literal["samples", "comparison"]
TriggerAsset = Literal["training_set", "model", "evaluation"]
PipelineAsset = TriggerAsset | Literal["replay", "measurement"]


@dataclass(frozen=True, slots=True)
class AssetProps:
    """One asset of ours: which it is, and of what. ``pipeline`` is None for the assets of a dataset."""

    asset: DatasetAsset | PipelineAsset
    dataset: DatasetSpec
    pipeline: PipelineSpec | None = None

    @property
    def owner_spec(self) -> DatasetSpec | PipelineSpec:
        """The spec the asset belongs to."""
        return self.dataset if self.pipeline is None else self.pipeline


_TEXTS: Final[Mapping[str, str]] = {
    "samples": "Samples of the dataset, one partition per batch: their keys, times and labels in Postgres, their bytes in files.",
    "comparison": "The pipelines of the dataset side by side: triggers, cost, and score over time.",
    "training_set": "Keys and weights of the samples that the selection policy chose, one partition per trigger.",
    "model": "The model trained on the training set, one partition per trigger.",
    "evaluation": "How good the model is, interval by interval, on every evaluation sample so far; one partition per trigger.",
    "measurement": "What the triggering policy wants to know before it decides: drift between windows, the newest model's "
    "performance, and the decisions that follow, one partition per batch. The sensor asks for it; replays show theirs here too.",
    "replay": "Experiment mode: select a range of batches and launch a backfill. One run walks them in order, decides, "
    "trains and evaluates as production would have. Launched again, it continues.",
}

_KINDS: Final[Mapping[str, Callable[[AssetProps], set[str]]]] = {
    "samples": lambda props: {"postgres", props.dataset.format.kind},
    "comparison": lambda _: {"matplotlib"},
    "training_set": lambda _: {"arrow"},
    "model": lambda _: {"pytorch", "mlflow"},
    "evaluation": lambda _: {"pytorch", "mlflow"},
    "measurement": lambda _: {"pytorch", "postgres"},
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
        """Key, group, kinds, owners, description and tags. Partitions and dependencies are added afterwards."""
        spec = props.owner_spec
        return dg.AssetSpec(
            [spec.name, props.asset],
            group_name=_group(props),
            kinds=_KINDS[props.asset](props),
            owners=spec.owners,
            description="\n\n".join(filter(None, [_TEXTS[props.asset], spec.description])),
            tags=None if props.pipeline is None else props.pipeline.display.tags,
        )


def _group(props: AssetProps) -> str:
    if props.asset == "comparison":
        # Of its own: the pipelines follow the samples, and it follows the pipelines.
        return f"{props.dataset.name}_comparison"
    if props.pipeline is None:
        return props.dataset.name
    return props.pipeline.display.group or props.pipeline.name
