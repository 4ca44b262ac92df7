"""Data-centric continuous training on Dagster: when to retrain, on which samples, and how good each choice is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modyn_dagster.build import build_definitions

__version__ = "0.1.0"
__all__ = ["__version__", "build_definitions"]


def __getattr__(name: str) -> object:
    # Imported when used: the CLI and worker processes do without Dagster.
    if name != "build_definitions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from modyn_dagster.build import build_definitions

    return build_definitions
