"""Code location of the runs that a command executes itself.

Dagster's timeline leaves out runs without a code location, and ``execute_in_process`` gives its runs none. Like ``event_store``
this module uses ``dagster._core``; where that has changed, runs are on the page of runs alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dagster as dg

#: Module of our code location where no `workspace.yaml` names one.
_MODULE: Final = "modyn_dagster.definitions"
#: Name that Dagster gives to the definitions of a module.
_REPOSITORY: Final = "__repository__"


@contextmanager
def runs_of_location(instance: dg.DagsterInstance, workspace: Path) -> Iterator[None]:
    """Let runs that this process creates belong to the code location of a `workspace.yaml`, which need not exist."""
    location = _location(workspace)
    if location is None:
        yield
        return
    create = instance.create_run_for_job

    def create_there(job_def: dg.JobDefinition, **options: Any) -> dg.DagsterRun:
        return create(job_def, **{"remote_job_origin": _job_origin(location, job_def.name), **options})

    instance.create_run_for_job = create_there  # type: ignore[method-assign,assignment]  # of this instance alone
    try:
        yield
    finally:
        del instance.create_run_for_job


def _location(workspace: Path) -> Any:
    """Origin of the location that serves our definitions, else of the first one; None if this Dagster has no such classes."""
    try:
        from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin  # noqa: F401
        from dagster._core.workspace.load import location_origins_from_yaml_paths
    except ImportError:
        return None
    if not workspace.is_file():
        return RegisteredCodeLocationOrigin(_MODULE)
    origins = location_origins_from_yaml_paths([str(workspace)])
    ours = [origin for origin in origins if getattr(origin.loadable_target_origin, "module_name", None) == _MODULE]
    return next(iter([*ours, *origins]), None)


def _job_origin(location: Any, job: str) -> Any:
    from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin

    return RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), job)
