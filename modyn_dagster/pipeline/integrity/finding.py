"""Findings of a verification: one line that names file, owner, fault and remedy."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from modyn_dagster.errors import CatalogError, CorruptFile, UnknownName
from modyn_dagster.files.mounting import files_at

#: Kinds of checked files, in the order in which they are checked: what others are made from comes first.
Kind = Literal[
    "deleted-lists",
    "sources",
    "indexes",
    "shards",
    "labels",
    "training-sets",
    "selector-states",
    "models",
    "optimizers",
    "weights",
    "predictions",
    "unnamed",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: State of a file: other bytes than recorded, absent although a row names it, present although none does, or not verifiable.
State = Literal["damaged", "missing", "unnamed", "unverified"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that is not as the catalog says.

    Attributes:
        path: relative to the home folder where the file lies below it.
        owner: dataset and batch, or pipeline and trigger.
        fault: what was expected, and what was found.
        remedy: what to do.
    """

    kind: Kind
    state: State
    path: str
    owner: str
    fault: str
    remedy: str

    @property
    def is_fault(self) -> bool:
        """True for lost or changed bytes; a file that nothing names does no harm."""
        return self.state in ("damaged", "missing")

    @property
    def line(self) -> str:
        """The finding in one line."""
        return f"{self.state}: {self.kind} {self.path} ({self.owner}): {self.fault}; {self.remedy}".replace("\n", " ")

    def to_json(self) -> dict[str, Any]:
        """Fields of the finding."""
        return asdict(self)


def shown_path(home: Path, path: Path | str) -> str:
    """Path relative to the home folder, where it lies below it."""
    path = Path(path)
    return str(path.relative_to(home)) if path.is_relative_to(home) else str(path)


def finding_of(kind: Kind, home: Path, error: CorruptFile, owner: str, remedy: str) -> Finding:
    """Finding for a damaged or missing file."""
    path = Path(str(error.path))
    state: State = "missing" if files_at(path).size(path) is None else "damaged"
    fault = f"expected {error.expected}, found {error.found}"
    return Finding(kind, state, shown_path(home, path), owner, fault, remedy)


def unverified(kind: Kind, path: str, owner: str, error: Exception) -> Finding:
    """Finding for files that an error kept from being read; raises the error again where Postgres does not answer."""
    if is_of_postgres(error):
        raise error
    return Finding(kind, "unverified", path, owner, str(error), "see to the cause and verify again")


def is_of_postgres(error: Exception) -> bool:
    """True for an error of Postgres, after which nothing can be verified; not for a name that the catalog lacks."""
    return isinstance(error, CatalogError) and not isinstance(error, UnknownName)
