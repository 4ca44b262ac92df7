"""What a model is, beside its weights: the function that builds it, what that is called with, and its source text."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modyn_dagster.errors import ConfigError
from modyn_dagster.model_store.json_values import require_json


@dataclass(frozen=True, slots=True)
class Architecture:
    """``factory`` as ``package.module:function``, and its keyword arguments: values of JSON, else ``NotJson``."""

    factory: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        module, colon, name = self.factory.partition(":")
        if not (module and colon and name):
            raise ConfigError("model store", "model", self.factory, "must be package.module:factory")
        require_json("model", "factory", self.factory)
        require_json("model", "args", dict(self.args))

    def to_json(self) -> dict[str, Any]:
        """Both by name."""
        return {"factory": self.factory, "args": dict(self.args)}

    def source(self) -> str | None:
        """The text of the module, if there is one; the module itself is not imported."""
        module = self.factory.partition(":")[0]
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        if found is None or found.origin is None or not found.origin.endswith(".py"):
            return None
        return Path(found.origin).read_text(encoding="utf-8")


def architecture_of(model: "str | Architecture | None") -> Architecture | None:
    """An import path alone means no arguments."""
    return Architecture(model) if isinstance(model, str) else model
