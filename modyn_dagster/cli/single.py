"""One holder per folder: a lock that ends with its process, and a note that says who holds it."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from modyn_dagster.errors import AlreadyRunning
from modyn_dagster.storage import atomic_write

_LOCK: Final = "ui.lock"
_NOTE: Final = "ui.json"


#: Tells whoever finds the lock taken under which URLs, by name, its holder answers.
Announce = Callable[[Mapping[str, str]], None]


@contextlib.contextmanager
def only_one(home: Path) -> Iterator[Announce]:
    """Hold the lock of a folder of state; ``AlreadyRunning`` names the process and URLs that hold it.

    The operating system drops the lock with its process, so a killed holder blocks nobody; the note is read only while
    the lock is held.
    """
    home.mkdir(parents=True, exist_ok=True)
    with open(home / _LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(_holder(home / _NOTE)) from None
        note = home / _NOTE
        _announce(note, {})
        try:
            yield partial(_announce, note)
        finally:
            note.unlink()


def _announce(note: Path, urls: Mapping[str, str]) -> None:
    with atomic_write(note) as file:
        file.write(json.dumps({"process": os.getpid(), "urls": dict(urls)}).encode())


def _holder(note: Path) -> str:
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
    except FileNotFoundError:  # the holder has the lock, but has not come to the note yet
        return "it is just starting"
    urls = ", ".join(f"{name} at {url}" for name, url in content["urls"].items())
    return f"process {content['process']}, {urls or 'still starting'}"
