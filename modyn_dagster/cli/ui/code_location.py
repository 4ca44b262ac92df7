"""Folders of Dagster's settings and definitions, and the files that a project without them gets."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modyn_dagster.cli.console import say
from modyn_dagster.errors import ConfigError
from modyn_dagster.storage import StagedFile, sweep_unfinished

#: Copies for projects that have none.
DEFAULTS: Final = Path(__file__).with_name("defaults")


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Folders of Dagster's settings and definitions: one with `dagster.yaml`, and one with `workspace.yaml`.

    ``workspace`` is a file that takes the place of the latter.
    """

    dagster_home: Path
    folder: Path
    workspace: Path | None = None

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
        """Options that tell a Dagster program to load a `workspace.yaml`, the given or this folder's, else our definitions."""
        workspace = self.workspace or self.folder / "workspace.yaml"
        return ["-w", str(workspace)] if workspace.is_file() else ["-m", "modyn_dagster.definitions"]


def _write_defaults(folder: Path) -> None:
    with _one_writer(folder):
        # Left by commands that were killed; nobody else writes now.
        sweep_unfinished(folder / path.name for path in DEFAULTS.iterdir())
        # `dagster.yaml` comes last: where it is, nothing is written any more.
        names = sorted((path.name for path in DEFAULTS.iterdir()), key=lambda name: name == "dagster.yaml")
        written = [name for name in names if _write_new(folder / name, (DEFAULTS / name).read_bytes())]
    if written:
        say(f"wrote {' and '.join(sorted(written))} into {folder}: Dagster's settings, yours to change", err=True)


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Lock a folder against other commands that write the defaults; the lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_new(path: Path, content: bytes) -> bool:
    """Write a file that appears whole; False where one is there already, which stays as it is."""
    if path.exists():
        return False
    staged = StagedFile(path)
    try:
        staged.write(content)
        staged.finish()
        # Unlike a renamed file, a linked one never replaces another.
        os.link(staged.temporary, path)
    except FileExistsError:
        return False
    finally:
        staged.discard()
    return True
