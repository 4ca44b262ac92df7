"""Loading of specs from the YAML files of a project. Faults are ``ConfigError``: the first one, or all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import CodeSources
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluateSplit, OtherDataset
from modyn_dagster.spec.learning.device import without_number
from modyn_dagster.spec.pipeline import DISPLAY_FIELDS, HOW_FIELDS, PipelineSpec
from modyn_dagster.spec.reading.code_packages import project_code
from modyn_dagster.spec.reading.complaints import config_error, config_errors, probable
from modyn_dagster.values.digest import json_digest
from modyn_dagster.values.yaml_values import read_yaml

S = TypeVar("S", bound=Spec)


@dataclass(frozen=True)
class Project:
    """Specs of a project folder, by name."""

    folder: Path
    datasets: Mapping[str, DatasetSpec]
    pipelines: Mapping[str, PipelineSpec]

    def root_of(self, dataset: str) -> str:
        """Root of a dataset's files: a URL unchanged, a local path made absolute."""
        return self._absolute(self.datasets[dataset].root)

    def label_root_of(self, dataset: str) -> str:
        """Root of the label files of a dataset whose labels arrive later, as by ``root_of``."""
        return self._absolute(self.datasets[dataset].label_rows().root)

    def _absolute(self, root: str) -> str:
        return root if "://" in root else str((self.folder / "datasets" / root).resolve())


def load_project(folder: Path) -> Project:
    """Read all specs of a folder. Raises ``ConfigError``, naming file and field, for the first impossible one.

    Modules in the folder ``code``, which specs may name, can be imported afterwards.
    """
    project, faults = read_project(folder, project_code(folder))
    if faults:
        raise faults[0]
    return project


def read_project(folder: Path, code: CodeSources) -> tuple[Project, list[ConfigError]]:
    """The possible specs of a folder, and every fault of the others: of single files first, then between files.

    A pipeline that names an impossible dataset has no fault of its own, nor is it part of the project.
    """
    faults: list[ConfigError] = []
    datasets, spoilt = _load_folder(folder / "datasets", DatasetSpec, code, faults)
    pipelines, others = _load_folder(folder / "pipelines", PipelineSpec, code, faults)
    spoilt |= others
    for pipeline in list(pipelines.values()):
        if pipeline.dataset not in datasets:
            if pipeline.dataset not in spoilt:
                rule = f"must be a dataset of this project: {', '.join(sorted(datasets)) or 'none'}"
                source = f"pipeline {pipeline.name}"
                faults.append(ConfigError(source, "dataset", pipeline.dataset, rule + probable(pipeline.dataset, [*datasets])))
            del pipelines[pipeline.name]
            spoilt.add(pipeline.name)
    for pipeline in pipelines.values():
        try:
            _check_data(pipeline, datasets, pipelines, spoilt)
        except ConfigError as fault:
            faults.append(fault)
    return Project(folder, datasets, pipelines), faults


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
    return json_digest(_behaviour(spec))


def changed_fields(old: PipelineSpec, new: PipelineSpec) -> list[str]:
    """Fields in which the behaviour of two pipelines differs, by their paths in the file: ``training.epochs``."""
    return list(_differing(_behaviour(old), _behaviour(new), ""))


def _behaviour(spec: PipelineSpec) -> Any:
    content = spec.model_dump(mode="json", exclude={**dict.fromkeys(DISPLAY_FIELDS, True), **HOW_FIELDS}, by_alias=True)
    return without_number(content)


def _differing(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in {**old, **new}:
            yield from _differing(old.get(name), new.get(name), f"{path}.{name}" if path else str(name))
    elif old != new:
        yield path


def _check_data(
    pipeline: PipelineSpec, datasets: Mapping[str, DatasetSpec], pipelines: Mapping[str, PipelineSpec], spoilt: set[str]
) -> None:
    """Raise ``ConfigError`` for evaluation data that does not exist or has labels of another kind.

    Data of a spec that is impossible itself are not looked at.
    """
    source, data = f"pipeline {pipeline.name}", pipeline.evaluation.data
    if isinstance(data, EvaluateSplit):
        _check_slices(pipeline, datasets[pipeline.dataset])
        return
    field, name, known = (
        ("dataset", data.dataset, sorted(datasets))
        if isinstance(data, OtherDataset)
        else ("pipeline", data.pipeline or pipeline.name, sorted(pipelines))
    )
    if name in spoilt:
        return
    if name not in known:
        rule = f"must be a {field} of this project: {', '.join(known)}{probable(name, known)}"
        raise ConfigError(source, f"evaluation.data.{field}", name, rule)
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


def _load_folder(folder: Path, kind: type[S], code: CodeSources, faults: list[ConfigError]) -> tuple[dict[str, S], set[str]]:
    """Possible specs of a folder by name, and the names of the impossible ones; faults are appended."""
    specs: dict[str, S] = {}
    spoilt: set[str] = set()
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        content: object = None
        try:
            content = read_yaml(path)
            spec = kind.model_validate(content, context=code)
        except ConfigError as fault:
            faults.append(fault)
            spoilt.add(path.stem)
            continue
        except ValidationError as error:
            faults += config_errors(str(path), content, error)
            spoilt.add(str(content.get("name", path.stem)) if isinstance(content, Mapping) else path.stem)
            continue
        name: str = getattr(spec, "name")  # noqa: B009 - both spec kinds have one
        if name in specs:
            faults.append(ConfigError(str(path), "name", name, "is used by another file of this folder"))
            continue
        specs[name] = spec
    return specs, spoilt
