"""Record of how one column becomes numbers; its values and numbers are in the state of the model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from modyn_dagster.spec.learning.features import EmbeddingSpec, HashSpec, ImputeSpec, NumberSpec, OneHotSpec

#: Specs of encodings and imputations.
Rule = OneHotSpec | HashSpec | EmbeddingSpec | NumberSpec | ImputeSpec
Kind = Literal["one_hot", "hash", "embedding", "number", "impute"]


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of a column.

    Attributes:
        column: name of the column.
        kind: of the encoding; ``impute`` for a number that may be missing.
        room: values of the vocabulary that there is a place for; 0 until it is fitted, where the room is as large as it.
        buckets: number of buckets; 0 for a vocabulary.
        dimension: width of embeddings.
        indicator: True if a second column tells missing numbers.
        n_values: values of the vocabulary.
        n_bytes: bytes of these values.
    """

    column: str
    kind: Kind
    room: int = 0
    buckets: int = 0
    dimension: int = 0
    indicator: bool = False
    n_values: int = 0
    n_bytes: int = 0

    @classmethod
    def of(cls, column: str, rule: Rule, *, reserve: bool) -> Self:
        """Derive the encoding of a rule, before it is fitted.

        ``reserve`` keeps places for as many values as the rule allows, so that later models have the same shape.
        """
        match rule:
            case ImputeSpec():
                return cls(column, "impute", indicator=rule.indicator)
            case HashSpec():
                return cls(column, "hash", buckets=rule.buckets)
            case OneHotSpec():
                return cls(column, "one_hot", room=rule.max_values if reserve else 0)
        room = rule.max_values if rule.buckets is None else 0
        return cls(column, rule.kind, room, rule.buckets or 0, rule.dimension if isinstance(rule, EmbeddingSpec) else 0)

    @property
    def has_vocabulary(self) -> bool:
        """True if values have numbers that depend on the training set."""
        return self.kind != "impute" and not self.buckets

    @property
    def width(self) -> int:
        """Columns that this one becomes."""
        match self.kind:
            case "one_hot":
                return 1 + (self.room or self.n_values)
            case "hash":
                return self.buckets
            case "impute":
                return 2 if self.indicator else 1
        return 1

    @property
    def rows(self) -> int:
        """Rows of a table of embeddings."""
        return self.buckets or self.room + 1

    @property
    def unscaled(self) -> range:
        """Columns, of those that this one becomes, whose values are kept by standardisation."""
        match self.kind:
            case "impute":
                return range(1, self.width)
            case "number":
                return range(0)
        return range(self.width)

    def shape_of_model(self) -> "Encoding":
        """The encoding without what differs between models of one shape."""
        return Encoding(self.column, self.kind, self.room or self.n_values, self.buckets, self.dimension, self.indicator)

    def to_json(self) -> dict[str, Any]:
        """Return the record of an architecture: the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read the record of an architecture; ``ValueError`` for one that is none."""
        found = cls(**{field.name: content[field.name] for field in fields(cls) if field.name in content})
        sizes = (found.room, found.buckets, found.dimension, found.n_values, found.n_bytes)
        if found.kind not in get_args(Kind) or not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(f"{dict(content)} is no encoding of a column")
        return found
