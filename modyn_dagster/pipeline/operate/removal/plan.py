"""Plan of a removal: everything beside the catalog that goes with a pipeline or a dataset, as JSON of the journal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from modyn_dagster.catalog.removal.journal import Kind, RemovalRow
from modyn_dagster.files.mounting import files_at


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """Files, models and partitions of a pipeline or dataset.

    Attributes:
        kind, name: of the subject.
        summary: its numbers, for people.
        paths: folders and files relative to the home folder.
        models: ids by the root of their store.
        rebase: store models that need one of these again without it; otherwise such a model stays.
        partitions: keys of its dynamic partitions in Dagster.
    """

    kind: Kind
    name: str
    summary: str
    paths: Sequence[str]
    models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rebase: bool = False
    partitions: Sequence[str] = ()

    @classmethod
    def of(cls, row: RemovalRow) -> Self:
        """Plan of a journal entry."""
        return cls(kind=row.kind, name=row.name, **row.plan)

    def to_json(self) -> dict[str, Any]:
        """Plan for the journal, whose columns hold kind and name."""
        return {name: value for name, value in asdict(self).items() if name not in ("kind", "name")}

    @property
    def n_models(self) -> int:
        """Number of models in all stores."""
        return sum(map(len, self.models.values()))

    def n_bytes(self, place_of: Callable[[str], Path]) -> int:
        """Bytes of the files, without those of models; ``place_of`` gives the path of each."""
        return sum(_size(place_of(path)) for path in self.paths)


def _size(path: Path) -> int:
    files = files_at(path)
    size = files.size(path)
    return sum(file.n_bytes for file in files.below(path)) if size is None else size
