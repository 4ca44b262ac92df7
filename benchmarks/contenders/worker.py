"""Process of one library contender, which may be installed in another environment than ours.

``python -m benchmarks.contenders.worker lance FOLDER FILE ...`` writes the files' rows in the library's format, then answers
requests on standard input, one JSON object a line: ``{"positions": FILE.npy, "check": true}`` with the seconds that took,
the number of rows, and (where ``check`` is true) the digest of the batch. The first answer is ``{"version": ...}``, or
``{"missing": why}`` where the library cannot be imported. Answers go to the descriptor that standard output was; what
libraries print goes to standard error.
"""

import importlib
import json
import os
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from benchmarks.contenders.library import Library
from benchmarks.rows import digest


def main(name: str, folder: Path, paths: list[Path]) -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Libraries tell of their own plans; what counts here is what they deliver.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        library: Library = importlib.import_module(f"benchmarks.contenders.{name}_rows").LIBRARY
    except ImportError as error:
        _answer(answers, {"missing": str(error)})
        return
    library.write(paths, folder)
    take = library.open(folder)
    _answer(answers, {"version": version(library.package)})
    for line in sys.stdin:
        request = json.loads(line)
        positions = np.load(request["positions"])
        start = time.perf_counter()
        batch = take(positions)
        seconds = time.perf_counter() - start
        _answer(
            answers, {"seconds": seconds, "units": len(batch["label"]), "digest": digest(batch) if request["check"] else None}
        )


def _answer(out: TextIO, content: dict[str, Any]) -> None:
    out.write(json.dumps(content) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
    # Some libraries keep threads that would hold the interpreter back.
    sys.stdout.flush()
    os._exit(0)
