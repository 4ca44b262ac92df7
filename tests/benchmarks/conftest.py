"""The benchmarks are no part of the installed package: tests find them in the repository."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
