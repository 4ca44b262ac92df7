"""Write requirements.lock: the pins of constraints.txt, each with the checksums of its files, as the package index gives them.

Usage: <python of the virtual environment> .ci/lock.py
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

LOCK = Path("requirements.lock")
HEADER = "# The pins of constraints.txt with the checksums of their files, for `make audit`. Written by `make lock`.\n"


def main() -> int:
    """Write the lock, and return the exit code."""
    install = runpy.run_path(str(Path(__file__).with_name("install.py")))
    pins = [line for line in Path("constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    # No address of an index: the files are the same wherever they come from.
    options = ["--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"]
    # As in install.py: the best version of all indexes.
    options += ["--index-strategy", "unsafe-best-match"]
    command = [install["UV"], "pip", "compile", "--python", sys.executable, *options, "-"]
    environment = os.environ | install["uv_settings"]()
    found = subprocess.run(command, input="\n".join(pins), check=False, stdout=subprocess.PIPE, text=True, env=environment)
    if found.returncode == 0:
        LOCK.write_text(HEADER + found.stdout)
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
