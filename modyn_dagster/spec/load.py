"""Loading of specs: YAML files of a project folder, and what pydantic says of them as one ``ConfigError``."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from modyn_dagster.digest import json_digest
from modyn_dagster.errors import ConfigError, without_secrets
from modyn_dagster.imports import add_code_folder
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluateSplit, OtherDataset
from modyn_dagster.spec.pipeline import DISPLAY_FIELDS, HOW_FIELDS, PipelineSpec

_Location = tuple[int | str, ...]

#: How much a complaint says of a mistake, the most first; where a union was meant otherwise its others are of no interest.
_TELLING: Final = ("extra_forbidden", "union_tag_invalid")
_LEAST: Final = ("missing", "union_tag_not_found", "model_type", "model_attributes_type")
_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")


def config_error(source: str, content: object, error: ValidationError) -> ConfigError:
    """The complaint about what a person most likely meant.

    In a union that is the branch that matched furthest; of several, the one with the fewest complaints; of those, a name
    that is unknown before one that is missing.
    """
    complaints = error.errors()
    paths = [list(_walk(content, complaint["loc"], complaint["type"])) for complaint in complaints]
    sizes = Counter(branch for _, branch in map(_split, paths))

    def meant(index: int) -> tuple[int, int, int]:
        field, branch = _split(paths[index])
        kind = complaints[index]["type"]
        deep = len(field) + kind.startswith("union_tag")
        return -deep, sizes[branch], 0 if kind in _TELLING else 2 if kind in _LEAST else 1

    chosen = min(range(len(complaints)), key=meant)
    return _as_error(source, _split(paths[chosen])[0], complaints[chosen])


def _as_error(source: str, field: Sequence[str], complaint: Mapping[str, Any]) -> ConfigError:
    found, kind, context = complaint.get("input"), complaint["type"], complaint.get("ctx", {})
    name, shown, rule = ".".join(field) or "(file)", found, str(complaint["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        rule = "is not a field here"
    elif kind == "missing":
        rule, shown = "is required", _names(found)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        name = ".".join([*field, context["discriminator"].strip("'")])
        missing = kind == "union_tag_not_found" and isinstance(found, Mapping)
        rule = f"must be one of {context['expected_tags']}" if kind == "union_tag_invalid" else "is required"
        shown = _names(found) if missing else context.get("tag", found)
    elif kind in _NO_MAPPING:
        rule = "must be a mapping of fields"
    return ConfigError(source, name, without_secrets(shown) if isinstance(shown, str) and "://" in shown else shown, rule)


def _names(found: object) -> object:
    """The fields there are: beside one that is missing, its misspelling shows."""
    return list(found) if isinstance(found, Mapping) else found


def _walk(content: Any, location: _Location, kind: str) -> Iterator[tuple[str, bool]]:
    """The parts of a location, and whether each is the user's; others are pydantic's names of the branches of unions."""
    for n, part in enumerate(location, 1):
        listed = isinstance(content, list) and isinstance(part, int) and part < len(content)
        if listed or (isinstance(content, Mapping) and part in content):
            content = content[part]
            yield str(part), True
        else:
            yield str(part), kind == "missing" and n == len(location)


def _split(path: Sequence[tuple[str, bool]]) -> tuple[list[str], tuple[str, ...]]:
    """The field, and the branch it is looked at in: everything up to the last of pydantic's names."""
    last = max((n for n, (_, users) in enumerate(path, 1) if not users), default=0)
    return [part for part, users in path if users], tuple(part for part, _ in path[:last])


S = TypeVar("S", bound=Spec)


@dataclass(frozen=True)
class Project:
    """All specs of one project folder, by name."""

    folder: Path
    datasets: Mapping[str, DatasetSpec]
    pipelines: Mapping[str, PipelineSpec]

    def root_of(self, dataset: str) -> str:
        """Root of a dataset's files: a URL as it is, a local path made absolute."""
        root = self.datasets[dataset].root
        return root if "://" in root else str((self.folder / "datasets" / root).resolve())


def load_project(folder: Path) -> Project:
    """Read every spec of a folder; the first impossible one raises ``ConfigError`` naming file and field.

    Modules in its folder ``code`` can be imported from then on: specs may name them.
    """
    add_code_folder(folder)
    datasets = _load_folder(folder / "datasets", DatasetSpec)
    pipelines = _load_folder(folder / "pipelines", PipelineSpec)
    for pipeline in pipelines.values():
        if pipeline.dataset not in datasets:
            known = ", ".join(sorted(datasets)) or "none"
            raise ConfigError(
                f"pipeline {pipeline.name}", "dataset", pipeline.dataset, f"must be a dataset of this project: {known}"
            )
        _check_data(pipeline, datasets, pipelines)
    return Project(folder, datasets, pipelines)


def load_spec(path: Path, kind: type[S]) -> S:
    """One spec from one file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "(file)", path.name, f"cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(str(path), "(file)", path.name, f"is not valid YAML: {error}") from error
    return parse_spec(content, kind, source=str(path))


def parse_spec(content: object, kind: type[S], *, source: str) -> S:
    """A spec from parsed YAML or JSON; ``ConfigError`` names the field and what is allowed."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise config_error(source, content, error) from None


def spec_hash(spec: PipelineSpec) -> str:
    """Hash of what a pipeline does: equal behaviour, equal hash, whatever its description says."""
    content = spec.model_dump(mode="json", exclude={**dict.fromkeys(DISPLAY_FIELDS, True), **HOW_FIELDS}, by_alias=True)
    return json_digest(content)


def _check_data(pipeline: PipelineSpec, datasets: Mapping[str, DatasetSpec], pipelines: Mapping[str, PipelineSpec]) -> None:
    """``ConfigError`` where models are to be judged on what does not exist, or on labels of another kind."""
    source, data = f"pipeline {pipeline.name}", pipeline.evaluation.data
    if isinstance(data, EvaluateSplit):
        _check_slices(pipeline, datasets[pipeline.dataset])
        return
    field, name, known = (
        ("dataset", data.dataset, sorted(datasets))
        if isinstance(data, OtherDataset)
        else ("pipeline", data.pipeline or pipeline.name, sorted(pipelines))
    )
    if name not in known:
        raise ConfigError(source, f"evaluation.data.{field}", name, f"must be a {field} of this project: {', '.join(known)}")
    other = name if isinstance(data, OtherDataset) else pipelines[name].dataset
    own, label = (datasets[each].label if each in datasets else None for each in (pipeline.dataset, other))
    if own is not None and (label is None or label.kind != own.kind):
        found = "no label" if label is None else f"a {label.kind} as its label"
        raise ConfigError(source, f"evaluation.data.{field}", name, f"{other} has {found}, {pipeline.dataset} has a {own.kind}")
    if other in datasets:
        _check_slices(pipeline, datasets[other])


def _check_slices(pipeline: PipelineSpec, dataset: DatasetSpec) -> None:
    known = [*(["label"] if dataset.label is not None and dataset.label.kind == "class" else []), *dataset.attributes]
    for i, name in enumerate(pipeline.evaluation.slices):
        if name not in known:
            rule = (
                f"must be an attribute of {dataset.name}, or label where that is a class: {', '.join(known) or 'there is none'}"
            )
            raise ConfigError(f"pipeline {pipeline.name}", f"evaluation.slices.{i}", name, rule)


def _load_folder(folder: Path, kind: type[S]) -> dict[str, S]:
    specs: dict[str, S] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        spec = load_spec(path, kind)
        name: str = getattr(spec, "name")  # noqa: B009 - both spec kinds have one
        if name in specs:
            raise ConfigError(str(path), "name", name, "is used by another file of this folder")
        specs[name] = spec
    return specs
