"""Every model ever trained, exactly.

Names load on first use: importing this package does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modyn_dagster.model_store.hash_tree import ModelId
    from modyn_dagster.model_store.store import ModelInfo, ModelStore, TensorInfo

__all__ = ["ModelId", "ModelInfo", "ModelStore", "TensorInfo"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.store"), name)
