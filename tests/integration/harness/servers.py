"""Dagster's webserver and daemon over a deployment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import psutil

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import MARK, Services
from modyn_dagster.cli.ui.services import HOST, daemon, free_port, webserver
from modyn_dagster.errors import ServiceFailed
from tests.integration.harness.deployment import Deployment
from tests.integration.harness.graphql import GraphQL
from tests.integration.harness.waiting import wait_for

_START_SECONDS: Final = 180.0
_BACKFILL_SECONDS: Final = 300
_UNDER_WAY: Final = ("REQUESTED", "CANCELING", "FAILING")
# Below the ports that outgoing connections get, and beside those of the embedded server.
_FIRST_PORT: Final = 12_000


class Servers:
    """Dagster's webserver and daemon over a deployment, in process groups of their own; ``stop`` leaves nothing behind."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.logs = deployment.settings.home / "logs"
        self._services = Services(self.logs, deployment.project)
        self.port = free_port(_FIRST_PORT + os.getpid() % 4_000)
        self.graphql = GraphQL(f"http://{HOST}:{self.port}", self._programs)

    def start(self) -> None:
        location = CodeLocation(self.deployment.project, self.deployment.project)
        environment: Mapping[str, str] = self.deployment.environment
        services = (webserver(location, environment, self.port), daemon(location, environment, self.port))
        for service in services:
            self._services.start(service)
        self._services.wait_until_answering(services, _START_SECONDS)

    def start_another_daemon(self) -> None:
        """As somebody does who forgets the first one; return when it has beaten."""
        location = CodeLocation(self.deployment.project, self.deployment.project)
        service = replace(daemon(location, self.deployment.environment, self.port), name="dagster-daemon-2")
        self._services.start(service)
        log = self._services.log_of(service.name)
        wait_for("the second daemon", lambda: "SensorDaemon" in log.read_text(errors="replace"), _START_SECONDS, self.why)

    def first_daemon(self) -> psutil.Process:
        """The older daemon."""
        daemons = [process for process in psutil.process_iter() if _is_daemon(process, str(self.logs))]
        return min(daemons, key=lambda process: process.create_time())

    def kill_first_daemon(self) -> None:
        """SIGKILL to the older daemon and to its code servers, in which its ticks run; runs under way go on."""
        first = self.first_daemon()
        for process in [first, *first.children()]:
            process.kill()

    def stop(self) -> None:
        self._services.stop()

    def backfill_status(self, backfill_id: str) -> str:
        """Status of a backfill, once it is over."""

        def ended() -> str | None:
            status = str(self.graphql.backfill(backfill_id)["status"])
            return None if status in _UNDER_WAY else status

        return wait_for(f"the end of backfill {backfill_id}", ended, _BACKFILL_SECONDS, self.why)

    def why(self, *sensors: str) -> str:
        """Report for a person to read when nothing happens: programs, batches, runs, sensor ticks, ends of logs."""
        return "\n".join([*self._catalog(), *self._dagster(sensors), self._programs()])

    def _catalog(self) -> Iterator[str]:
        yield f"batches: {self.deployment.states()}"
        with self.deployment.platform.transaction() as conn:
            for run in runs.list_runs(conn):
                triggers = [(row.partition_key, row.state, row.attempt, row.error) for row in list_triggers(conn, run.id)]
                yield f"{run.title}: {run.state}, cursor {run.cursor}, last batch {run.last_ordinal}, {triggers}"

    def _dagster(self, sensors: Sequence[str]) -> Iterator[str]:
        for name in sensors:
            yield from (f"{name}: {tick}" for tick in self.graphql.ticks(name)[:3])
        for launched in self.graphql.runs()[:12]:
            assets = [key["path"] for key in launched["assetSelection"] or []]
            yield f"run {launched['id']}: {launched['status']} {assets}"
            if launched["status"] == "FAILURE":
                yield from (f"  {message[:2_000]}" for message in self.graphql.messages(launched["id"])[-8:])

    def _programs(self) -> str:
        """Programs that ended, and the ends of their logs."""
        tails = [f"--- {log.name}\n" + log.read_text(errors="replace")[-3_000:] for log in sorted(self.logs.glob("*.log"))]
        try:
            self._services.check()
        except ServiceFailed as error:
            return "\n".join([str(error), *tails])
        return "\n".join(tails)


def _is_daemon(process: psutil.Process, logs: str) -> bool:
    try:
        return process.environ().get(MARK) == logs and any(word.endswith("/dagster-daemon") for word in process.cmdline())
    except psutil.Error:  # another user's, or just gone
        return False


@contextmanager
def served(deployment: Deployment) -> Iterator[Servers]:
    """The deployment with webserver and daemon running."""
    servers = Servers(deployment)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
