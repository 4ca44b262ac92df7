"""A process in which the packages of all extras are missing; prints what could not be imported, and what commands say.

Usage: python without_extras.py MODULE...    (imports these; without any, every module there is)
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator

import fastpath
import modyn_dagster
from modyn_dagster.imports import EXTRA_OF

#: Commands that need an extra, in a folder with a project.
COMMANDS = (
    ["pipeline", "replay", "by_amount"],
    ["dataset", "import", "shop"],
    ["up"],
    ["services", "run", "daemon"],
    ["services", "run", "mlflow"],
)
#: Alembic runs it in a context of its own.
RUN_BY_OTHERS = "modyn_dagster.catalog.migrations.env"


def every_module() -> Iterator[str]:
    """Names of all modules of both packages."""
    for package in (fastpath, modyn_dagster):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _name: None):
            if found.name != RUN_BY_OTHERS:
                yield found.name


def refusal(module: str) -> str | None:
    """The message of the error that an import ends with; None if it works."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None


def main(modules: list[str]) -> None:
    # Such an entry makes Python refuse the import, as that of a package that is not installed.
    sys.modules.update(dict.fromkeys([*EXTRA_OF, "pandas", "sklearn"]))  # type: ignore[arg-type]  # None is what Python looks for
    refused = {module: message for module in modules or every_module() if (message := refusal(module)) is not None}
    from click.testing import CliRunner

    from modyn_dagster.cli import main as command_line

    said = {" ".join(command): CliRunner().invoke(command_line, command).output for command in COMMANDS}
    sys.stdout.write(json.dumps({"refused": refused, "said": said}))


if __name__ == "__main__":
    main(sys.argv[1:])
