"""Progress of a training in another process of this machine, told through a small file."""

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from modyn_dagster.progress import BAR_SECONDS, ProgressCallback, TrainingProgress

_RECORD: Final = struct.Struct("<4qd")


@contextmanager
def progress_teller(path: Path | None) -> Iterator[ProgressCallback | None]:
    """Yield a callback that writes the progress to a file, a few times a second and after the last step.

    None without a path, and where its folder does not exist because that is on another machine.
    """
    if path is None or not path.parent.is_dir():
        yield None
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    told_at = 0.0

    def tell(progress: TrainingProgress) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= BAR_SECONDS or progress.step == progress.n_steps:
            told_at = now
            os.pwrite(file, _RECORD.pack(*progress), 0)

    try:
        yield tell
    finally:
        os.close(file)


@contextmanager
def followed_progress(progress: ProgressCallback | None) -> Iterator[Path | None]:
    """Yield the path of a file, and call ``progress``, in another thread, with what is written there within the block.

    None without a callback.
    """
    if progress is None:
        yield None
        return
    with TemporaryDirectory(prefix="modyn-progress-") as folder:
        path, ended = Path(folder, "progress"), threading.Event()
        thread = threading.Thread(target=_follow, args=(path, progress, ended), name="progress", daemon=True)
        thread.start()
        try:
            yield path
        finally:
            ended.set()
            thread.join()


def _follow(path: Path, progress: ProgressCallback, ended: threading.Event) -> None:
    last = b""
    is_over = False
    while not is_over:
        is_over = ended.wait(BAR_SECONDS)
        content = path.read_bytes() if path.exists() else b""
        if content != last and len(content) == _RECORD.size:
            last = content
            progress(TrainingProgress(*_RECORD.unpack(content)))
