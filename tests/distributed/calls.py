"""Functions that pools of tests call in their workers."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from modyn_dagster.errors import CorruptFile, DeletedKey, RunError, WriteFailed


class Unsendable(RuntimeError):
    """An error whose arguments are others than it keeps, and hold what cannot travel."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{reason} ({number})")
        self.number, self.lock = number, threading.Lock()


def doubled(number: int) -> int:
    return 2 * number


def pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def variables(names: tuple[str, ...]) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def prints(text: str) -> str:
    sys.stdout.write(text)
    sys.stdout.flush()
    os.write(1, text.encode())
    return sys.stdin.read()


def note(path: Path) -> None:
    """Leave a mark that the call was made."""
    path.write_text(str(os.getpid()))


def slow_note(path: Path) -> None:
    note(path)
    time.sleep(0.3)


def unsendable(_: object) -> object:
    return sys.stderr


def dies_once(path: Path) -> str:
    """Kill the worker unless somebody has been here before."""
    if path.exists():
        return path.read_text()
    note(path)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def dies(path: Path) -> None:
    """End the worker, and count how often."""
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    os._exit(7)


def fails(kind: str) -> None:
    if kind == "corrupt":
        raise CorruptFile(Path("a.arrow"), "checksum 1", "2")
    if kind == "deleted":
        raise DeletedKey(17, "clicks")
    if kind == "full":
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise WriteFailed(Path("a.arrow"), "No space left on device") from error
    if kind == "beside":
        try:
            raise TypeError("a mistake")
        except TypeError:
            raise RunError("met while that was handled")  # noqa: B904 - it was not raised from it
    if kind == "foreign":
        raise Unsendable(3, "no luck")
    if kind == "unicode":
        b"\xff".decode()
    raise RunError("no such kind")


def fails_after(seconds: float) -> None:
    time.sleep(seconds)
    raise RunError(f"failed after {seconds} s")
