"""Folders of Dagster's settings and definitions, and the files that a project without them gets."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modyn_dagster.cli.console import say
from modyn_dagster.errors import ConfigError
from modyn_dagster.storage import atomic_write, temporary_name

#: Copies for projects that have none.
DEFAULTS: Final = Path(__file__).with_name("defaults")


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Folders of Dagster's settings and definitions: one with `dagster.yaml`, and one with `workspace.yaml`."""

    dagster_home: Path
    folder: Path

    @classmethod
    def find(cls, project: Path, dagster_home: str | None) -> "CodeLocation":
        """Use ``DAGSTER_HOME`` if set, else the current folder or the project's, whichever has a `dagster.yaml`.

        Where there is none, ``DAGSTER_HOME`` or else the project gets ours, and a `workspace.yaml` unless it has one.

        Raises:
            ConfigError: ``DAGSTER_HOME`` or the project is no folder.
            WriteFailed: it cannot be written.
        """
        here = Path.cwd()
        candidates = [Path(dagster_home)] if dagster_home else [here, project]
        home = next((folder for folder in candidates if (folder / "dagster.yaml").is_file()), None)
        if home is None:
            home = candidates[-1]
            if not home.is_dir():
                name = "DAGSTER_HOME" if dagster_home else "MODYN_PROJECT"
                raise ConfigError("environment", name, str(home), "must be a folder that exists")
            _write_defaults(home)
        folder = next((folder for folder in (here, project, home) if (folder / "workspace.yaml").is_file()), here)
        return cls(home.resolve(), folder.resolve())

    @property
    def arguments(self) -> list[str]:
        """Options that tell a Dagster program to load this folder's `workspace.yaml`, else our definitions."""
        workspace = self.folder / "workspace.yaml"
        return ["-w", str(workspace)] if workspace.is_file() else ["-m", "modyn_dagster.definitions"]


def _write_defaults(folder: Path) -> None:
    written = [path.name for path in sorted(DEFAULTS.iterdir()) if _write_new(folder / path.name, path.read_bytes())]
    if written:
        say(f"wrote {' and '.join(written)} into {folder}: Dagster's settings, yours to change", err=True)


def _write_new(path: Path, content: bytes) -> bool:
    """Write a file that appears whole; False where one is there already, which stays as it is."""
    if path.exists():
        return False
    staged = temporary_name(path)
    try:
        with atomic_write(staged) as file:
            file.write(content)
        # Unlike a renamed file, a linked one never replaces another.
        os.link(staged, path)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    return True
