"""Files of a new project, rendered from templates, and their folder, which appears whole or not at all."""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from modyn_dagster.durability.names import sync_folder, temporary_name, write_errors
from modyn_dagster.errors import ConfigError, StorageError, WriteFailed
from modyn_dagster.storage import atomic_write

TEMPLATES: Final = Path(__file__).with_name("templates")

_SUFFIX: Final = ".template"
_VALUE: Final = re.compile(r"@([A-Z_]+)@")
#: Stands for the name of the project in names of template files.
_PROJECT: Final = "project"
#: Under its own name it would act on the folder of templates.
_HIDDEN: Final = {"gitignore": ".gitignore"}
_EXISTS: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def render(folders: Sequence[str], values: Mapping[str, str]) -> dict[str, bytes]:
    """Render the files of some folders of templates.

    Args:
        folders: below ``TEMPLATES``, the later ones last; one with a slash gives only the files below it, at the same place:
            ``tabular/code`` those of ``tabular`` in ``code``.
        values: texts that stand for ``@KEY@`` in files ``*.template``, put in once and as they are; ``NAME`` also in file names.

    Returns content by path below the project. Raises ``KeyError`` for a value that a template has and ``values`` lacks.
    """
    files: dict[str, bytes] = {}
    for folder in folders:
        top = TEMPLATES / folder.partition("/")[0]
        for path in sorted((TEMPLATES / folder).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            place, content = path.relative_to(top), path.read_bytes()
            name = place.name.removesuffix(_SUFFIX).replace(_PROJECT, values["NAME"])
            if place.suffix == _SUFFIX:
                content = _VALUE.sub(lambda found: values[found[1]], content.decode()).encode()
            files[place.with_name(_HIDDEN.get(name, name)).as_posix()] = content
    return files


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Provide a hidden folder beside ``target`` that becomes ``target`` after the block, in one step.

    After an error it is removed; one that a kill has left is removed by the next call for the same name. An empty ``target`` is
    replaced.

    Raises:
        ConfigError: ``target`` is there and is no empty folder, before or after the block.
        WriteFailed: the operating system refuses.
    """
    require_free(target)
    _sweep(target)
    temporary = temporary_name(target)
    with write_errors(target):
        temporary.mkdir()
    try:
        with _locked(temporary):
            yield temporary
            with write_errors(target):
                sync_folder(temporary)
                _move(temporary, target)
                sync_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a project below a folder. Raises ``WriteFailed``."""
    for path, content in files.items():
        with atomic_write(folder / path) as file:
            file.write(content)


def require_free(target: Path) -> None:
    """Refuse a place that is taken. Raises ``ConfigError``, or ``StorageError`` where nobody can tell."""
    try:
        is_free = not os.path.lexists(target) or (target.is_dir() and not target.is_symlink() and not any(target.iterdir()))
    except OSError as error:
        raise StorageError(f"{target}: {error.strerror}") from error
    if not is_free:
        raise _taken(target)


def _taken(target: Path) -> ConfigError:
    rule = "is there already, and nothing is overwritten: choose another name, or remove it first"
    return ConfigError("init", "NAME", str(target), rule)


def _move(temporary: Path, target: Path) -> None:
    try:
        # Of a folder: the system replaces an empty one, and refuses everything else.
        temporary.rename(target)
    except OSError as error:
        if error.errno in _EXISTS:
            raise _taken(target) from error
        raise WriteFailed(target, error.strerror or str(error)) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder as long as its writer lives, also under its later name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # A file system without locks has none: then nothing is swept either.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove the hidden folders of writers that were killed."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.tmp")
    for path in [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
