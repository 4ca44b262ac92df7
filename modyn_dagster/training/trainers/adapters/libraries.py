"""Libraries of trainers, which extras install, and the rule that their threads are the pipeline's."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from modyn_dagster.errors import MissingExtra

#: Rule about parameters that choose a number of threads.
THREADS: Final = "comes from `threads` of the pipeline"


def library_version(package: str, extra: str, source: str, name: str) -> str:
    """Version of an installed package; ``MissingExtra`` names the extra that brings it."""
    distributions = (package, f"{package}-cpu")
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise MissingExtra(source, "training.model.name", name, package=package, extra=extra)
