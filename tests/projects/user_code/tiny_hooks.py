"""A hook of the tiny project: what it is told, line by line in a file beside all state."""

import os
from pathlib import Path

from modyn_dagster.pipeline.event import Event


def noted(event: Event) -> None:
    with (Path(os.environ["MODYN_HOME"]) / "heard.txt").open("a") as notes:
        notes.write(f"{event.kind} {event.trigger} {event.reason}\n")
