"""Every model ever trained, exactly.

Names load on first use: importing this package does not import torch.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.model_store.architecture import Architecture
    from modyn_dagster.model_store.environment import Environment
    from modyn_dagster.model_store.hash_tree import ModelId
    from modyn_dagster.model_store.info import ModelInfo, TensorInfo
    from modyn_dagster.model_store.provenance import Provenance
    from modyn_dagster.model_store.store import ModelStore
    from modyn_dagster.model_store.strategies import Adaptive, ChangedLayers, Delta, Prices, Retrain, Snapshot

__all__ = [
    "Adaptive",
    "Architecture",
    "ChangedLayers",
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
    "Architecture": "architecture",
    "Environment": "environment",
    "ModelId": "hash_tree",
    "ModelInfo": "info",
    "ModelStore": "store",
    "Provenance": "provenance",
    "TensorInfo": "info",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'strategies')}"), name)
