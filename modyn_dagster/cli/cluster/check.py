"""``modyn-dagster cluster``: whether the nodes of a cluster can do each other's work."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modyn_dagster.cli.console import say
from modyn_dagster.errors import without_secrets
from modyn_dagster.files.mounting import files_at
from modyn_dagster.private_files import make_home
from modyn_dagster.settings import Settings
from modyn_dagster.storage import atomic_write

if TYPE_CHECKING:
    from modyn_dagster.pipeline.operate.node import NodeFacts

Result = TypeVar("Result")

#: Nodes that are asked at the same time, each by a thread.
_AT_ONCE = 64
#: Longest wait for the answer of a node, which may have to import torch first.
_ANSWER_SECONDS = 60.0
#: Rounds of asking a node for its time; the quickest answer says most.
_ROUNDS = 5


@click.group()
def cluster() -> None:
    """Look at the nodes of a Ray cluster."""


@cluster.command()
@click.option("--address", help="The head as host:port, or `auto`; default: RAY_ADDRESS, and without it this machine alone.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with an object per node.")
def check(address: str | None, as_json: bool) -> None:
    """Compare the nodes with this process: versions, processor, threads, shared files, clock, Postgres and GPUs.

    Prints one line per node, and below what must be mended. Ends with exit code 1 when there is something.
    """
    chosen = address or os.environ.get("RAY_ADDRESS")
    with _shared_folder(Settings.from_environment()) as (folder, token):
        answers = list(_answers(chosen, folder, token))
    if as_json:
        click.echo(json.dumps([each.to_json() for each in answers], indent=2))
    else:
        for answer in answers:
            say(answer.line())
            for problem in answer.problems:
                say(f"  {problem}", err=True)
        if chosen is None:
            say("no cluster: neither --address nor RAY_ADDRESS names one")
    if any(answer.problems for answer in answers):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Answer of one node.

    Attributes:
        node: ``this process``, or the node's address and the beginning of its id.
        facts: what it said; None for a node that could not answer.
        offset: seconds that its clock is ahead of ours, as far as that is sure.
        problems: what must be mended.
    """

    node: str
    facts: "NodeFacts | None"
    offset: float
    problems: list[str]

    def to_json(self) -> dict[str, Any]:
        """All facts by name, if there are any, and the rest beside them."""
        facts = self.facts.to_json() if self.facts is not None else {}
        return {**facts, "node": self.node, "offset": self.offset, "problems": self.problems}

    def line(self) -> str:
        """One line for the terminal."""
        facts = self.facts
        if facts is None:
            return f"{self.node}: no answer"
        packages = ", ".join(f"{name} {version}" for name, version in facts.packages.items())
        parts = [
            f"Python {facts.python}, {packages}",
            f"{facts.processor} ({facts.capability}), {facts.cores} cores",
            f"threads of a worker: {', '.join(f'{name} {number}' for name, number in facts.threads.items())}",
            f"files {'ok' if not any(each.startswith('files') for each in self.problems) else 'not shared'}",
            f"clock {self.offset:+.2f} s",
            f"Postgres {'ok' if facts.postgres == 'ok' else 'not reached'}",
            ", ".join(facts.gpus) or "no GPU",
        ]
        return f"{self.node} ({facts.host}): {'; '.join(parts)}"


@contextmanager
def _shared_folder(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Make a file for the nodes to read; all that was exchanged is removed in the end."""
    from modyn_dagster.pipeline.operate.node import exchange_folder

    make_home(settings.home)
    folder, token = exchange_folder(settings), secrets.token_hex(8)
    with atomic_write(folder / token) as out:
        out.write(token.encode())
    try:
        yield folder, token
    finally:
        for path in files_at(folder).names(folder):
            if path.name.startswith(token):
                files_at(path).remove(path)


def _answers(address: str | None, folder: Path, token: str) -> Iterator[_Answer]:
    from modyn_dagster.distributed.processes.pool import ProcessPool
    from modyn_dagster.pipeline.operate.node import NodeFacts, exchanged, node_facts, worker_threads

    with ProcessPool(1) as workers:
        threads = next(workers.map(worker_threads, [None]))
    here = NodeFacts.parse(node_facts(token, f"{token}-here") | {"threads": threads})
    yield _Answer("this process", here, 0.0, here.problems(here, 0.0, here.wrote))
    if address is None:
        return
    from modyn_dagster.distributed.on_ray.cluster import connect
    from modyn_dagster.distributed.on_ray.watch import node_title

    ray = connect(address)
    nodes = sorted((each for each in ray.nodes() if each["Alive"]), key=lambda each: each["NodeID"])
    names = {node["NodeID"]: f"{token}-{index}" for index, node in enumerate(nodes)}
    asked = at_once(lambda node: _ask(ray, node, token, names[node]), list(names))
    for node, future in zip(nodes, asked, strict=True):
        title = node_title(node["NodeManagerAddress"], node["NodeID"])
        try:
            answer, offset = future.result()
        except ray.exceptions.RayError as error:
            yield _Answer(title, None, 0.0, [problem_of(error)])
            continue
        facts = NodeFacts.parse(answer)
        wrote = exchanged(folder / names[node["NodeID"]])
        yield _Answer(title, facts, offset, facts.problems(here, offset, wrote))


def at_once(ask: Callable[[str], Result], nodes: Sequence[str]) -> "list[Future[Result]]":
    """Ask all nodes at the same time, so that silent ones cost the wait for one; answers are in the order of the nodes."""
    with ThreadPoolExecutor(max(1, min(len(nodes), _AT_ONCE))) as pool:
        return [pool.submit(ask, node) for node in nodes]


def problem_of(error: Exception) -> str:
    """Reason why a node gave no facts, in a line. Ray quotes the traceback of the node, whose last line names the error."""
    if isinstance(error, TimeoutError):
        return f"cannot answer: nothing came within {_ANSWER_SECONDS:.0f} s"
    lines = [line.strip() for line in without_secrets(str(error)).splitlines() if line.strip()]
    return f"cannot answer: {lines[-1] if lines else type(error).__name__}"


def _ask(ray: Any, node: str, token: str, name: str) -> tuple[dict[str, Any], float]:
    """Facts about a node, and the seconds that its clock is surely ahead: those beyond the time of the answer."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from modyn_dagster.distributed.children import thread_settings
    from modyn_dagster.pipeline.operate.node import node_clock, node_facts

    # No core: a busy node answers too.
    options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
    # The threads of calls with one core.
    worker = {**options, "runtime_env": {"env_vars": thread_settings(1)}}
    facts: dict[str, Any] = ray.get(ray.remote(node_facts).options(**worker).remote(token, name), timeout=_ANSWER_SECONDS)
    clock = ray.remote(node_clock).options(**options)
    rounds = []
    for _ in range(_ROUNDS):
        before = time.time()
        there = ray.get(clock.remote(), timeout=_ANSWER_SECONDS)
        after = time.time()
        rounds.append((after - before, there - (before + after) / 2))
    took, offset = min(rounds)
    sure = max(0.0, abs(offset) - took / 2)
    return facts, sure if offset > 0 else -sure
