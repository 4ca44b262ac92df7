"""One training in a process of its own: ``python -m tests.gpu.train_alone NAME DEVICE CHECKPOINT STEP RESULT``.

It kills itself while batch STEP is being told of, 0 for never, and writes its bits to RESULT.
"""

import sys
from pathlib import Path

from tests.training.resumable import resumable
from tests.training.train_and_be_killed import bits, trained


def main(name: str, device: str, checkpoint: str, step: str, result: str) -> None:
    """Train, and perhaps die."""
    path = Path(checkpoint) if checkpoint != "-" else None
    Path(result).write_bytes(bits(trained(resumable(name, device=device), path, int(step))))


if __name__ == "__main__":
    main(*sys.argv[1:])
