"""Specs, keys, ops and dynamic partitions of the assets of one dataset and of one pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg

from modyn_dagster.assets.checks import check_specs
from modyn_dagster.assets.translator import AssetProps, DatasetAsset, ModynTranslator, PipelineAsset, TriggerAsset
from modyn_dagster.errors import ConfigError
from modyn_dagster.resources.run_classes import pipeline_tags
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec

#: Dagster's pages write ranges and lists of keys with these.
_REFUSED_IN_KEY: Final = (",", "...", "|")


def batches_of(dataset: str) -> dg.DynamicPartitionsDefinition:
    """One partition per batch of a dataset, in announcement order."""
    return dg.DynamicPartitionsDefinition(name=f"batches/{dataset}")


def labels_of(dataset: str) -> dg.DynamicPartitionsDefinition:
    """One partition per label batch of a dataset, in announcement order."""
    return dg.DynamicPartitionsDefinition(name=f"labels/{dataset}")


def triggers_of(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """One partition per trigger of a pipeline, of live runs and replays alike."""
    return dg.DynamicPartitionsDefinition(name=f"triggers/{pipeline}")


def add_partitions(instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Add the keys an instance does not know yet, in the order given."""
    fresh = unknown_partitions(instance, partitions, keys)
    if fresh:
        instance.add_dynamic_partitions(str(partitions.name), fresh)


def unknown_partitions(
    instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]
) -> list[str]:
    """The keys an instance does not know yet; ``ConfigError`` for one that its pages could not select."""
    known = set(instance.get_dynamic_partitions(str(partitions.name)))
    fresh = [key for key in keys if key not in known]
    for key in fresh:
        for text in _REFUSED_IN_KEY:
            if text in key:
                raise ConfigError(str(partitions.name), "partition key", key, f"must not hold {text!r}")
    return fresh


def _spec_file(project: Path | None, kind: str, name: str) -> Path | None:
    """File of a spec, where it has the name of what it describes; else the folder that holds it."""
    if project is None:
        return None
    files = [project / kind / f"{name}{suffix}" for suffix in (".yaml", ".yml")]
    return next((file for file in files if file.is_file()), project / kind)


@dataclass(frozen=True, slots=True)
class DatasetAssets:
    """``samples``, ``labels`` and ``comparison`` of a dataset; ``pipelines`` are those on it, ``folder`` is their project's."""

    dataset: DatasetSpec
    pipelines: Sequence[PipelineSpec]
    translator: ModynTranslator
    folder: Path | None = None

    def spec(self, asset: DatasetAsset) -> dg.AssetSpec:
        """Spec of an asset: key, group, metadata."""
        source = _spec_file(self.folder, "datasets", self.dataset.name)
        return self.translator.get_asset_spec(AssetProps(asset, self.dataset, source=source))

    def key(self, asset: DatasetAsset) -> dg.AssetKey:
        """Key of an asset."""
        return self.spec(asset).key

    def op(self, asset: DatasetAsset) -> str:
        """Name of the op that makes it."""
        return f"{self.dataset.name}__{asset}"

    def of_pipelines(self) -> "list[PipelineAssets]":
        """The assets of the pipelines on this dataset."""
        return [PipelineAssets(pipeline, self.dataset, self.translator, self.folder) for pipeline in self.pipelines]


@dataclass(frozen=True, slots=True)
class PipelineAssets:
    """``training_set``, ``model``, ``evaluation``, ``measurement``, ``champion`` and ``replay`` of a pipeline."""

    pipeline: PipelineSpec
    dataset: DatasetSpec
    translator: ModynTranslator
    folder: Path | None = None

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.pipeline.name

    def spec(self, asset: PipelineAsset) -> dg.AssetSpec:
        """Spec of an asset: key, group, metadata."""
        source = _spec_file(self.folder, "pipelines", self.pipeline.name)
        return self.translator.get_asset_spec(AssetProps(asset, self.dataset, self.pipeline, source))

    def key(self, asset: PipelineAsset) -> dg.AssetKey:
        """Key of an asset."""
        return self.spec(asset).key

    def op(self, asset: PipelineAsset) -> str:
        """Name of the op that makes it."""
        return f"{self.pipeline.name}__{asset}"

    def samples_key(self) -> dg.AssetKey:
        """Key of the samples of its dataset."""
        return self.translator.get_asset_spec(AssetProps("samples", self.dataset)).key

    def of_trigger(self, asset: TriggerAsset, *deps: Any) -> dict[str, Any]:
        """Arguments of ``dagster.multi_asset`` for an asset with a partition per trigger: spec, checks, class, live pool."""
        partitions = triggers_of(self.name)
        spec = self.spec(asset).merge_attributes(deps=deps).replace_attributes(partitions_def=partitions, skippable=True)
        return {
            "name": self.op(asset),
            "specs": [spec],
            "check_specs": check_specs(asset, spec.key, partitions),
            "op_tags": pipeline_tags("evaluation" if asset == "evaluation" else "training", self.pipeline),
            "pool": f"live__{self.name}",
        }
