"""Starts two ranks that wait for ever: ``python -m tests.distributed.parent_of_ranks FOLDER``."""

import sys

from modyn_dagster.distributed.opening import open_group
from tests.distributed.ranked import write_down_and_wait

if __name__ == "__main__":
    open_group("processes").run(write_down_and_wait, sys.argv[1], 2)
