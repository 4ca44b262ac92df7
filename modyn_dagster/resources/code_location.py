"""Code location of the runs that a command executes itself.

Dagster's timeline leaves out runs without a code location, and ``execute_in_process`` gives its runs none. The location is made
from the form in which Dagster stores it, which later versions read too; where one does not, runs are on the page of runs alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, Final

import dagster as dg
from dagster_shared.serdes.errors import DeserializationError

from modyn_dagster.values.yaml_values import read_yaml

#: Module of our code location, also where no `workspace.yaml` names one.
_MODULE: Final = "modyn_dagster.definitions"
#: Name that Dagster gives to the definitions of a module.
_REPOSITORY: Final = "__repository__"
#: Fields of an entry of ``load_from`` that name what is loaded, and with it the location if nothing else does.
_LOADED: Final = ("module_name", "package_name", "relative_path", "location_name")


@contextmanager
def runs_of_location(instance: dg.DagsterInstance, workspace: Path) -> Iterator[None]:
    """Let runs that this process creates belong to the code location of a `workspace.yaml`, which need not exist."""
    location = location_name(workspace)
    create = instance.create_run_for_job

    def create_there(job_def: dg.JobDefinition, **options: Any) -> dg.DagsterRun:
        return create(job_def, **{"remote_job_origin": _origin(location, job_def.name), **options})

    instance.create_run_for_job = create_there  # type: ignore[method-assign,assignment]  # of this instance alone
    try:
        yield
    finally:
        del instance.create_run_for_job


def location_name(workspace: Path) -> str:
    """Name of the code location with our definitions, as Dagster derives it from a `workspace.yaml`; else of the first one."""
    content = read_yaml(workspace) if workspace.is_file() else {}
    names = dict(_named(entry) for entry in content.get("load_from", ()) if isinstance(entry, Mapping) and entry)
    return names.get(_MODULE) or next(iter(names.values()), _MODULE)


def _named(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Target of an entry, and the name of its location."""
    target = next(iter(entry.values()))
    if not isinstance(target, Mapping):
        return str(target), PurePath(str(target)).name
    loaded = next((str(target[field]) for field in _LOADED if field in target), _MODULE)
    return loaded, str(target.get("location_name") or PurePath(loaded).name)


def _origin(location: str, job: str) -> Any:
    """Origin of a job's runs; None if this Dagster cannot read it."""
    place = {"__class__": "RegisteredRepositoryLocationOrigin", "location_name": location}
    repository = {
        "__class__": "ExternalRepositoryOrigin",
        "repository_location_origin": place,
        "repository_name": _REPOSITORY,
    }
    origin = {"__class__": "ExternalPipelineOrigin", "external_repository_origin": repository, "pipeline_name": job}
    try:
        return dg.deserialize_value(json.dumps(origin))
    except DeserializationError:
        return None
