"""Kinds of the files of a project, by their places, and the datasets and pipelines that they belong to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modyn_dagster.pipeline.operate.removal.datasets import DATASET_FOLDERS
from modyn_dagster.pipeline.operate.removal.pipelines import RUN_FOLDERS

#: Kinds of files below the home folder, by folder and suffix; the first that fits counts.
_PLACES: Final = (
    ("batches", ".deleted", "deleted lists"),
    ("batches", "", "indexes"),
    ("shards", "", "shards"),
    ("labels", "", "labels"),
    ("training_sets", ".json", "selector states"),
    ("training_sets", "", "training sets"),
    ("predictions", "", "predictions"),
    ("checkpoints", "", "checkpoints"),
    ("optimizers", "", "optimizers"),
    ("ahead", "", "models ahead"),
    ("models", "", "models"),
    ("weights", "", "cached weights"),
    ("cache", "", "copies"),
    ("reports", "", "reports"),
    ("deletions", "", "deletion reports"),
    ("logs", "", "logs"),
    ("dagster", "", "Dagster's logs"),
    ("mlflow", "", "MLflow's files"),
    ("postgres", "", "Postgres"),
)
POSTGRES: Final = "Postgres"
OTHER: Final = "other"
#: Order of the kinds in tables.
KINDS: Final = [*dict.fromkeys(kind for _, _, kind in _PLACES), OTHER]
#: Suffixes of the files of models; the other files of a store serve all of them.
_MODEL_FILES: Final = (".safetensors", ".pack")
#: Owner of files that belong to no dataset and no pipeline alone.
_EVERYONE: Final = "all"


@dataclass(frozen=True, slots=True)
class Owners:
    """Pipelines by run, and by model; a model that several pipelines have trained belongs to all of them together."""

    of_runs: Mapping[int, str]
    of_models: Mapping[str, str]


def classify(home: Path, stores: list[Path], path: Path, owners: Owners) -> tuple[str, str]:
    """Kind and owner of a file."""
    if any(path.is_relative_to(store) for store in stores):
        return "models", _owner_of_model(path, owners)
    if not path.is_relative_to(home):
        return POSTGRES, _EVERYONE
    top, *rest = path.relative_to(home).parts
    kind = next((kind for folder, suffix, kind in _PLACES if folder == top and path.name.endswith(suffix) and rest), OTHER)
    return kind, _owner(top, rest, path, owners)


def _owner(top: str, rest: Sequence[str], path: Path, owners: Owners) -> str:
    if top == "models":
        return _owner_of_model(path, owners)
    if top == "reports":
        return path.stem
    if len(rest) > 1 and top in DATASET_FOLDERS:
        return rest[0]
    if len(rest) > 1 and top in RUN_FOLDERS and rest[0].isdecimal():
        return owners.of_runs.get(int(rest[0]), f"run {int(rest[0])}")
    return _EVERYONE


def _owner_of_model(path: Path, owners: Owners) -> str:
    if path.suffix not in _MODEL_FILES:
        return _EVERYONE
    return owners.of_models.get(path.stem, "no trigger")
