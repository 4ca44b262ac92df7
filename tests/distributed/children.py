"""Worker processes of a pool, as the operating system sees them."""

from contextlib import suppress

import psutil


def workers_of(pid: int) -> list[psutil.Process]:
    """Workers that a process has started and that run."""
    found = []
    for child in psutil.Process(pid).children():
        # Zombies of others have no command line.
        with suppress(psutil.Error):
            if "modyn_dagster.distributed.worker" in child.cmdline():
                found.append(child)
    return found
