"""What a stored model tells beside its tensors: how it is stored and why, and where it came from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from modyn_dagster.json_values import compact_json
from modyn_dagster.model_store.format.hash_tree import ModelId

_OPTIONAL_TEXTS: Final = ("base", "environment", "code")
_MAPPINGS: Final = ("architecture", "provenance")


@dataclass(frozen=True, slots=True)
class About:
    """Lineage and circumstances of a model.

    Attributes:
        strategy: the kind it is stored as; never ``adaptive``, which chose it.
        reason: why.
        base: the model it was derived from.
        since_full: models along the lineage since one that is stored whole.
        environment: hash of the document that describes where it was made.
        code: hash of the source file of its architecture.
        architecture: ``factory`` as ``package.module:function`` and its ``args``.
        provenance: how to train it again.
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
    def start(self) -> ModelId | None:
        """The model that a training of this one starts from."""
        return self.base if (self.provenance or {}).get("uses_base", True) else None

    def to_json(self) -> dict[str, Any]:
        """All fields that say something."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "")}

    @classmethod
    def parse(cls, content: object) -> Self:
        """The inverse; ``ValueError`` for anything else."""
        if not isinstance(content, dict) or not set(content) <= {each.name for each in fields(cls)}:
            raise ValueError("not the circumstances of a model")
        fits = [isinstance(content.get("strategy"), str), isinstance(content.get("reason", ""), str)]
        fits += [isinstance(content.get(name, ""), str) for name in _OPTIONAL_TEXTS]
        fits += [isinstance(content.get(name, {}), dict) for name in _MAPPINGS]
        fits += [_is_architecture(content.get("architecture"))]
        fits += [type(content.get("since_full", 0)) is int]
        if not all(fits):
            raise ValueError("circumstances of a model with a value of the wrong type")
        return cls(**content)

    def to_metadata(self) -> dict[str, str]:
        """As metadata of a safetensors file, with a checksum."""
        text = compact_json(self.to_json(), sort_keys=True)
        return {"modyn.about": text, "modyn.sum": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self | None:
        """The inverse; None for files of before; ``ValueError`` when they changed."""
        text = metadata.get("modyn.about")
        if text is None:
            return None
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != metadata.get("modyn.sum"):
            raise ValueError("the circumstances of the model do not have the checksum beside them")
        return cls.parse(json.loads(text))


def _is_architecture(content: object) -> bool:
    match content:
        case None | {"factory": str(), "args": dict()}:
            return True
    return False
