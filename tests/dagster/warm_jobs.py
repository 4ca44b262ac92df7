"""Jobs whose runs say what kind of process they are executed by, or hang."""

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import dagster as dg

#: How this process begins: taken before the first run looks.
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)


def facts() -> dict[str, object]:
    """Whatever a run must find alike in every process that executes it."""
    import torch

    return {
        "group": os.getpgid(0),
        "folder": str(Path.cwd()),
        "limits": [resource.getrlimit(limit) for limit in LIMITS],
        "nice": os.nice(0),
        "processors": sorted(os.sched_getaffinity(0)),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "sum": float(torch.ones(1_000, 1_000).matmul(torch.ones(1_000, 1_000)).sum()),
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith(("OMP_", "MKL_", "MODYN_", "PYTHON"))
        },
    }


@dg.op(config_schema={"file": str})
def tell(context: dg.OpExecutionContext) -> None:
    had_torch = "torch" in sys.modules
    print("told to standard output", flush=True)  # noqa: T201 - it is captured
    found = facts() | {"pid": os.getpid(), "parent": os.getppid(), "had_torch": had_torch, "definitions": DEFINITIONS_READ}
    Path(context.op_config["file"]).write_text(json.dumps(found | {"main": threading.current_thread().name}))


@dg.op(config_schema={"file": str})
def hang(context: dg.OpExecutionContext) -> None:
    Path(context.op_config["file"]).write_text(str(os.getpid()))
    time.sleep(600)


@dg.job(executor_def=dg.in_process_executor)
def telling() -> None:
    tell()


@dg.job(executor_def=dg.in_process_executor)
def hanging() -> None:
    hang()


#: Process that read these definitions: every run reads them anew.
DEFINITIONS_READ = os.getpid()
defs = dg.Definitions(jobs=[telling, hanging])
