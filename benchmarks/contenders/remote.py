"""Library contenders in separate processes, requested batch by batch, so that they take turns with ours."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Run

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Nothing here is fetched: no library may look for updates, hubs or clouds.
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "DO_NOT_TRACK": "1", "LITDATA_DISABLE_VERSION_CHECK": "1"}


class Missing(Exception):
    """The library is not installed, or cannot be used here; the text says why."""


class Remote:
    """A library at work on the benchmark's rows. A context manager: the process ends with it.

    Args:
        name: of the module ``contenders/<name>_rows.py``.
        python: the interpreter that has the library.
        folder: for the library's files.
        paths: the benchmark's files.

    Several may be made before the first is asked for anything: they get ready side by side.
    """

    def __init__(self, name: str, python: Path, folder: Path, paths: Sequence[Path]) -> None:
        self.name, self._folder = name, folder / name
        self._folder.mkdir(parents=True)
        self._log = open(self._folder / "log.txt", "w+")  # noqa: SIM115 - closed with the process
        command = [str(python), "-m", "benchmarks.contenders.worker", name, str(self._folder), *map(str, paths)]
        environment = {**os.environ, **_OFFLINE, "HF_HOME": str(self._folder / "home"), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ready(self) -> str:
        """Wait until the rows are written and opened; returns the library's version. ``Missing`` when it is of no use."""
        found = self._answer()
        if "missing" in found:
            raise Missing(found["missing"])
        version: str = found["version"]
        return version

    def take(self, positions: npt.NDArray[np.int64], *, check: bool = False) -> tuple[Run, str | None]:
        """Rows at positions, timed inside the process; with ``check`` also the digest of the batch."""
        path = self._folder / "positions.npy"
        np.save(path, positions)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"positions": str(path), "check": check}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Missing(self._last_words()) from error
        found = self._answer()
        return Run(found["units"], found["seconds"]), found["digest"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        """The last line of the process's log."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return lines[-1] if lines else "its process ended without a word"
