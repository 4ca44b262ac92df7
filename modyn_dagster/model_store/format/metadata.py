"""Metadata of a stored model: its strategy and the reason for it, lineage, architecture and provenance."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.values.json_values import compact_json

_OPTIONAL_TEXTS: Final = ("base", "environment", "code")
_MAPPINGS: Final = ("architecture", "provenance")


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Lineage and circumstances of a model.

    Attributes:
        strategy: kind of the file; never ``adaptive``, which only chooses.
        reason: grounds for the strategy.
        base: the model it was derived from.
        since_full: models along the lineage since the last one stored whole.
        environment: hash of the document that describes the machine and libraries.
        code: hash of the source file of the architecture.
        architecture: ``factory`` as ``package.module:function`` and its ``args``.
        provenance: recipe of the training.
    """

    strategy: str
    reason: str = ""
    base: ModelId | None = None
    since_full: int = 0
    environment: str | None = None
    code: str | None = None
    architecture: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = field(default=None)

    @property
    def training_base(self) -> ModelId | None:
        """Base from whose weights the training starts; None for a training from scratch."""
        return self.base if (self.provenance or {}).get("uses_base", True) else None

    def to_json(self) -> dict[str, Any]:
        """All fields with a value."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "")}

    @classmethod
    def parse(cls, content: object) -> Self:
        """Inverse of ``to_json``; ``ValueError`` for anything else."""
        if not isinstance(content, dict) or not set(content) <= {item.name for item in fields(cls)}:
            raise ValueError("no metadata of a model")
        fits = [isinstance(content.get("strategy"), str), isinstance(content.get("reason", ""), str)]
        fits += [isinstance(content.get(name, ""), str) for name in _OPTIONAL_TEXTS]
        fits += [isinstance(content.get(name, {}), dict) for name in _MAPPINGS]
        fits += [_is_architecture(content.get("architecture"))]
        fits += [type(content.get("since_full", 0)) is int]
        if not all(fits):
            raise ValueError("metadata of a model with a value of the wrong type")
        return cls(**content)

    def to_metadata(self) -> dict[str, str]:
        """Metadata of a safetensors file, with a checksum."""
        text = compact_json(self.to_json(), sort_keys=True)
        return {"modyn.about": text, "modyn.sum": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Inverse of ``to_metadata``; ``ValueError`` where the text is missing or contradicts its checksum."""
        text = metadata.get("modyn.about")
        if text is None:
            raise ValueError("no metadata of a model")
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != metadata.get("modyn.sum"):
            raise ValueError("the metadata of the model contradict the checksum beside them")
        return cls.parse(json.loads(text))


def _is_architecture(content: object) -> bool:
    match content:
        case None | {"factory": str(), "args": dict()}:
            return True
    return False
