"""Store of every model ever trained, bit for bit.

Names load on first use: importing this package does not import torch.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.model_store.format.hash_tree import ModelId
    from modyn_dagster.model_store.info import ModelInfo, TensorInfo
    from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance
    from modyn_dagster.model_store.store import ModelStore
    from modyn_dagster.model_store.strategies.settings import Adaptive, ChangedLayers, Custom, Delta, Prices, Retrain, Snapshot
    from modyn_dagster.reproducibility.environment import Environment

__all__ = [
    "Adaptive",
    "Architecture",
    "ChangedLayers",
    "Custom",
    "Delta",
    "Environment",
    "ModelId",
    "ModelInfo",
    "ModelStore",
    "Prices",
    "Provenance",
    "Retrain",
    "Snapshot",
    "TensorInfo",
]

_HOMES: Final[Mapping[str, str]] = {
    "Adaptive": "modyn_dagster.model_store.strategies.settings",
    "Architecture": "modyn_dagster.model_store.provenance.recipe",
    "ChangedLayers": "modyn_dagster.model_store.strategies.settings",
    "Custom": "modyn_dagster.model_store.strategies.settings",
    "Delta": "modyn_dagster.model_store.strategies.settings",
    "Environment": "modyn_dagster.reproducibility.environment",
    "ModelId": "modyn_dagster.model_store.format.hash_tree",
    "ModelInfo": "modyn_dagster.model_store.info",
    "ModelStore": "modyn_dagster.model_store.store",
    "Prices": "modyn_dagster.model_store.strategies.settings",
    "Provenance": "modyn_dagster.model_store.provenance.recipe",
    "Retrain": "modyn_dagster.model_store.strategies.settings",
    "Snapshot": "modyn_dagster.model_store.strategies.settings",
    "TensorInfo": "modyn_dagster.model_store.info",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
