"""Loading of specs from the YAML files of a project, with the errors of pydantic turned into one ``ConfigError``."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, StringConstraints, ValidationError

from modyn_dagster.errors import ConfigError, without_secrets
from modyn_dagster.imports import STANDARD, CodeSources, add_code_folder, is_standard
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluateSplit, OtherDataset
from modyn_dagster.spec.pipeline import DISPLAY_FIELDS, HOW_FIELDS, PipelineSpec
from modyn_dagster.values.digest import json_digest
from modyn_dagster.values.yaml_values import read_yaml

_Location = tuple[int | str, ...]

#: Types of complaints that name a mistake precisely, and types that only say what a branch of a union lacks.
_SPECIFIC: Final = ("extra_forbidden", "union_tag_invalid")
_VAGUE: Final = ("missing", "union_tag_not_found", "model_type", "model_attributes_type")
_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")


def config_error(source: str, content: object, error: ValidationError) -> ConfigError:
    """The most useful complaint of a failed validation.

    In a union, complaints of the branch that matched furthest come first, then those of the branch with the fewest, then
    unknown names before missing ones.
    """
    complaints = error.errors()
    paths = [list(_walk(content, complaint["loc"], complaint["type"])) for complaint in complaints]
    sizes = Counter(branch for _, branch in map(_split, paths))

    def rank(index: int) -> tuple[int, int, int]:
        field, branch = _split(paths[index])
        kind = complaints[index]["type"]
        depth = len(field) + kind.startswith("union_tag")
        return -depth, sizes[branch], 0 if kind in _SPECIFIC else 2 if kind in _VAGUE else 1

    chosen = min(range(len(complaints)), key=rank)
    return _as_error(source, _split(paths[chosen])[0], complaints[chosen])


def _as_error(source: str, field: Sequence[str], complaint: Mapping[str, Any]) -> ConfigError:
    value, kind, context = complaint.get("input"), complaint["type"], complaint.get("ctx", {})
    name, shown, rule = ".".join(field) or "(file)", value, str(complaint["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        rule = "is not a field here"
    elif kind == "missing":
        rule, shown = "is required", _field_names(value)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        name = ".".join([*field, context["discriminator"].strip("'")])
        missing = kind == "union_tag_not_found" and isinstance(value, Mapping)
        rule = f"must be one of {context['expected_tags']}" if kind == "union_tag_invalid" else "is required"
        shown = _field_names(value) if missing else context.get("tag", value)
    elif kind in _NO_MAPPING:
        rule = "must be a mapping of fields"
    return ConfigError(source, name, without_secrets(shown) if isinstance(shown, str) and "://" in shown else shown, rule)


def _field_names(value: object) -> object:
    """Names of the given fields: a misspelt one shows beside the missing one."""
    return list(value) if isinstance(value, Mapping) else value


def _walk(content: Any, location: _Location, kind: str) -> Iterator[tuple[str, bool]]:
    """Parts of a location, with True for those of the user; the others are pydantic's names of branches of unions."""
    for n, part in enumerate(location, 1):
        listed = isinstance(content, list) and isinstance(part, int) and part < len(content)
        if listed or (isinstance(content, Mapping) and part in content):
            content = content[part]
            yield str(part), True
        else:
            yield str(part), kind == "missing" and n == len(location)


def _split(path: Sequence[tuple[str, bool]]) -> tuple[list[str], tuple[str, ...]]:
    """Field of a location, and its branch: everything up to the last name of pydantic."""
    last = max((n for n, (_, users) in enumerate(path, 1) if not users), default=0)
    return [part for part, users in path if users], tuple(part for part, _ in path[:last])


S = TypeVar("S", bound=Spec)


class CodeSpec(Spec):
    """Installed packages whose functions the specs of a project may name, beside those in its folder ``code``."""

    packages: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]] = Field(default_factory=list)


class ProjectSpec(Spec):
    """The file `project.yaml`."""

    code: CodeSpec = CodeSpec()


def project_code(folder: Path) -> CodeSources:
    """Read the origins of code that a project's specs may name, and make its folder ``code`` importable.

    Raises ``ConfigError`` for a `project.yaml` that is impossible.
    """
    add_code_folder(folder)
    path = folder / "project.yaml"
    packages = load_spec(path, ProjectSpec).code.packages if path.exists() else []
    for package in packages:
        if is_standard(package):
            raise ConfigError(str(path), "code.packages", package, STANDARD)
    return CodeSources(folder / "code", frozenset(packages))


@dataclass(frozen=True)
class Project:
    """Specs of a project folder, by name."""

    folder: Path
    datasets: Mapping[str, DatasetSpec]
    pipelines: Mapping[str, PipelineSpec]

    def root_of(self, dataset: str) -> str:
        """Root of a dataset's files: a URL unchanged, a local path made absolute."""
        root = self.datasets[dataset].root
        return root if "://" in root else str((self.folder / "datasets" / root).resolve())


def load_project(folder: Path) -> Project:
    """Read all specs of a folder. Raises ``ConfigError``, naming file and field, for the first impossible one.

    Modules in the folder ``code``, which specs may name, can be imported afterwards.
    """
    code = project_code(folder)
    datasets = _load_folder(folder / "datasets", DatasetSpec, code)
    pipelines = _load_folder(folder / "pipelines", PipelineSpec, code)
    for pipeline in pipelines.values():
        if pipeline.dataset not in datasets:
            known = ", ".join(sorted(datasets)) or "none"
            raise ConfigError(
                f"pipeline {pipeline.name}", "dataset", pipeline.dataset, f"must be a dataset of this project: {known}"
            )
        _check_data(pipeline, datasets, pipelines)
    return Project(folder, datasets, pipelines)


def load_spec(path: Path, kind: type[S], code: CodeSources | None = None) -> S:
    """Read a spec from a YAML file, which may name functions from ``code``. Raises ``ConfigError``."""
    return parse_spec(read_yaml(path), kind, source=str(path), code=code)


def parse_spec(content: object, kind: type[S], *, source: str, code: CodeSources | None = None) -> S:
    """Validate parsed YAML or JSON. Raises ``ConfigError``, naming the field and the allowed values.

    Without ``code`` functions may come from anywhere but the standard library: the caller is code itself.
    """
    try:
        return kind.model_validate(content, context=code)
    except ValidationError as error:
        raise config_error(source, content, error) from None


def spec_hash(spec: PipelineSpec) -> str:
    """Hash of the behaviour of a pipeline; fields that only describe or display it do not count."""
    content = spec.model_dump(mode="json", exclude={**dict.fromkeys(DISPLAY_FIELDS, True), **HOW_FIELDS}, by_alias=True)
    return json_digest(content)


def _check_data(pipeline: PipelineSpec, datasets: Mapping[str, DatasetSpec], pipelines: Mapping[str, PipelineSpec]) -> None:
    """Raise ``ConfigError`` for evaluation data that does not exist or has labels of another kind."""
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
    own, label = (datasets[dataset].label if dataset in datasets else None for dataset in (pipeline.dataset, other))
    if own is not None and (label is None or label.kind != own.kind):
        other_label = "no label" if label is None else f"a {label.kind} as its label"
        raise ConfigError(
            source, f"evaluation.data.{field}", name, f"{other} has {other_label}, {pipeline.dataset} has a {own.kind}"
        )
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


def _load_folder(folder: Path, kind: type[S], code: CodeSources) -> dict[str, S]:
    specs: dict[str, S] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        spec = load_spec(path, kind, code)
        name: str = getattr(spec, "name")  # noqa: B009 - both spec kinds have one
        if name in specs:
            raise ConfigError(str(path), "name", name, "is used by another file of this folder")
        specs[name] = spec
    return specs
