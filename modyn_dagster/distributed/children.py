"""Child processes that answer over pipes of their own: new interpreters that end with their parent, and leave nothing behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

#: Child of ``start_child``.
Child = subprocess.Popen[bytes]

#: Libraries read their numbers of threads from these when they are loaded.
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Threads of NumPy's BLAS.
BLAS: Final = "OPENBLAS_NUM_THREADS"
#: Milliseconds between two looks whether a silent child is alive.
_LOOK: Final = 500


def thread_settings(cpus: int) -> dict[str, str]:
    """Environment variables for a worker with so many cores that computes what this process computes, bit for bit."""
    return dict.fromkeys(_THREADS, str(cpus)) | {BLAS: blas_threads()}


def blas_threads() -> str:
    """Number of threads of this process's BLAS, on which its bits may depend: elsewhere it needs as many."""
    given = next((os.environ[name] for name in (BLAS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS") if os.environ.get(name)), None)
    return given or str(len(os.sched_getaffinity(0)))


def start_child(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
    """Start ``python -m`` with some arguments and this process's import path; its standard input and output are pipes.

    It is a new interpreter, not a fork: it inherits neither threads nor locks, and does not run the main program again.
    """
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    variables = os.environ | dict(environment or {}) | {"PYTHONPATH": path}
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)


def ending_of(process: Child) -> str:
    """Describe how a child ended; one that still runs does not answer."""
    try:
        code = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "its process does not answer"
    return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with status {code}"


def await_output(process: Child) -> None:
    """Wait until a child has written something; ``EOFError`` when it has ended without.

    The end of its pipe says too little: a process that the child forked may hold the pipe open.
    """
    waiting = select.poll()
    waiting.register(cast(BinaryIO, process.stdout))
    while not waiting.poll(_LOOK):
        if process.poll() is not None and not waiting.poll(0):
            raise EOFError


def end_all(processes: list[Child], owner: int) -> None:
    """Kill these processes and wait for them, in the process that owns them; others may take theirs off the list meanwhile."""
    if os.getpid() != owner:
        return
    # Working threads remove their processes from the list.
    ending = list(processes)
    for process in ending:
        process.kill()
    for process in ending:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # The pipe may hold bytes that the process never read.
                with suppress(OSError):
                    cast(BinaryIO, pipe).close()


def own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Pipes of a child to its parent, out of reach of code that reads the standard input or prints.

    Ctrl-C, which reaches the whole group of processes, is left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def read_exactly(pipe: BinaryIO, size: int) -> bytes:
    """Read so many bytes; ``EOFError`` when the other side is gone."""
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content
