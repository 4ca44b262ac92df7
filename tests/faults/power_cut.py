"""A power cut for our own files: everything that was not synced is forgotten, as strictly as POSIX allows.

The content of a file survives as of its last ``fsync``, a name in a folder (created, renamed, linked or removed) as of the last
``fsync`` of that folder. Real file systems keep more; a program that survives this survives them.
"""

import shutil
from pathlib import Path
from typing import Final

from tests.faults import injector

#: Name of the note in the shadow that says which folder the tree begins with.
_ROOT: Final = "root"


def remember_all(root: Path, shadow: Path) -> None:
    """Note everything below ``root`` as durable; in a process that follows a plan with this shadow."""
    for path in root.rglob("*"):
        injector.remember(path)
    (shadow / _ROOT).write_text(injector.remember(root))


def cut(root: Path, shadow: Path) -> list[str]:
    """Let a tree be as the power cut leaves it; returns what was lost, came back or changed by it, relative to ``root``."""
    before = {path: _content(path) for path in _below(root)}
    shutil.rmtree(root)
    root.mkdir()
    _restore(root, shadow, (shadow / _ROOT).read_text())
    after = {path: _content(path) for path in _below(root)}
    return sorted(str(path.relative_to(root)) for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _restore(folder: Path, shadow: Path, identity: str) -> None:
    durable = shadow / identity
    # Never synced: its own name survives, no name in it does.
    for line in durable.read_text().splitlines() if durable.exists() else []:
        kind, mode, entry, name = line.split(" ", 3)
        path = folder / name
        if kind == "d":
            path.mkdir()
            _restore(path, shadow, entry)
        elif (shadow / entry).exists():
            shutil.copyfile(shadow / entry, path)
        else:
            path.touch()
        path.chmod(int(mode, 8))


def _below(root: Path) -> list[Path]:
    return list(root.rglob("*"))


def _content(path: Path) -> bytes:
    return b"(folder)" if path.is_dir() else path.read_bytes()
