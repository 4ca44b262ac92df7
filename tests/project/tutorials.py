"""Commands and outputs that the tutorials quote, and a shell that runs them."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
#: On its own, in a folder of its own.
SERVING: Final = "tutorial_serving"
#: In the order in which a reader follows them: the second goes on in the folder of the first.
TUTORIALS: Final = ("tutorial_late_labels", "tutorial_deletion")

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MARK: Final = "=== ran with exit code "
#: Words that differ from run to run and from machine to machine: digests, and numbers.
#: Lines of bash about a process in the background that ended; an interactive shell has others.
_JOBS: Final = re.compile(r"^bash: line \d+: +\d+ Terminated .*\n", re.MULTILINE)
_VARYING: Final = re.compile(r"\b[0-9a-f]{8,64}\b…?|[+-]?\d[\d.,]*")


class Quoted(NamedTuple):
    """A command of a tutorial, and the output that stands below it."""

    command: str
    output: str


def quoted(name: str) -> list[Quoted]:
    """Commands of a tutorial in their order."""
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    parts = [part for block in _BLOCK.findall(page) for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [Quoted(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def run_in_shell(commands: Sequence[str], environment: Mapping[str, str], log: Path) -> list[tuple[int, str]]:
    """Run commands one after the other in one shell that begins at the root; exit code and output of each.

    Settings of the surroundings are no part of its environment, but for the place of Postgres' programs.
    """
    theirs = ("MODYN_", "DAGSTER_")
    kept = {name: value for name, value in os.environ.items() if name == "MODYN_PG_BIN" or not name.startswith(theirs)}
    lines = ["set -o pipefail"]
    for command in commands:
        lines += [command, f'echo "{_MARK}$?"']
    # A file, not a pipe: a server that outlives the shell would keep that open.
    with log.open("wb") as file:
        script = "\n".join(lines)
        subprocess.run(["bash", "-c", script], cwd=ROOT, env=kept | dict(environment), stdout=file, stderr=file, check=True)
    parts = re.split(rf"^{_MARK}(\d+)\n", log.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(int(code), output) for output, code in zip(parts[::2], parts[1::2])]


def require_same(followed: Sequence[Quoted], ran: Sequence[tuple[int, str]], home: Path) -> None:
    """Require every command to end well and to say the quoted words; numbers, which depend on the machine, are not compared."""
    assert len(ran) == len(followed)
    for each, (code, output) in zip(followed, ran, strict=True):
        assert code == 0, (each.command, output)
        said = without_numbers(_JOBS.sub("", output).replace(str(home), "/home/you"))
        # Cells of a table wrap by the width of their neighbours: what comes first in a line may differ.
        assert sorted(said) == sorted(without_numbers(each.output)), each.command


def without_numbers(text: str) -> list[str]:
    """Words of an output; numbers and digests count as one word, lines may break elsewhere."""
    return [word for word in _VARYING.sub("#", text).replace("─", "").split() if word]
