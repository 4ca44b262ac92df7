"""Dagster's launcher for one machine, which also sees to runs that nobody is left to report, or that do not listen.

Dagster's own asks the code server that started a run's process for everything. When the two die together, the run stays
``STARTED`` for ever and holds its pool; and a process that hangs outside of Python never notices that it was cancelled. This
one looks at the process itself. Dagster's run monitoring calls it; `dagster.yaml` names it.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self, get_type_hints

import dagster as dg
import psutil

#: Host and number of the process of a run that a command executes itself, as ``<host>:<number>``.
PROCESS_TAG: Final = "modyn/process"
#: Where the code server listens that started a run's process: Dagster's tag.
_CODE_SERVER_TAG: Final = ".dagster/grpc_info"
_HERE: Final = ("localhost", "127.0.0.1")
_ENDED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
#: A process this much younger than the event that names its number is another one, which got the number later.
_CLOCKS_DIFFER_SECONDS: Final = 60.0


class WatchingRunLauncher(dg.DefaultRunLauncher):
    """Launches runs as Dagster's default launcher does, and knows whether their processes live.

    Attributes:
        kill_after_seconds: what is cancelled and does not end by itself in that time is killed.
    """

    def __init__(self, kill_after_seconds: int = 60, inst_data: Any = None) -> None:
        super().__init__(inst_data)
        self.kill_after_seconds = kill_after_seconds

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """In `dagster.yaml`, below ``run_launcher.config``."""
        return {"kill_after_seconds": dg.Field(dg.Int, default_value=60)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        """From there."""
        return cls(inst_data=inst_data, **config_value)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring asks, every ``run_monitoring.poll_interval_seconds``."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """``FAILED`` when the process of a run under way is gone; one that was never seen counts as running.

        The process itself reports how a run ended, before it goes, so a run that is not over by then has nobody left.
        """
        return _health("FAILED", "the process of the run is gone") if self.has_lost_process(run) else _health("RUNNING")

    def has_lost_process(self, run: dg.DagsterRun) -> bool:
        """True if a process began to execute a run on this machine and is gone."""
        return self._begun(run) is not None and self._process(run) is None

    def terminate(self, run_id: str) -> bool:
        """Ask the run's process to end, through its code server or, where that is gone, itself; kill what does not listen."""
        run = self._instance.get_run_by_id(run_id)
        process = self._process(run) if run is not None and not run.is_finished else None
        try:
            asked: bool = super().terminate(run_id)  # type: ignore[no-untyped-call]  # Dagster has no type for it
        except dg.DagsterError:
            # The code server is gone, or does not answer.
            if process is None:
                raise
            asked = False
        if process is None:
            return asked
        if not asked:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        # Not a daemon thread: a command that cancels ends when the process has ended.
        threading.Thread(target=self._see_to_it, args=[process], name=f"end of run {run_id}").start()
        return True

    def _see_to_it(self, process: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess):
            try:
                process.wait(self.kill_after_seconds)
            except psutil.TimeoutExpired:
                for each in [*process.children(recursive=True), process]:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()

    def _process(self, run: dg.DagsterRun) -> psutil.Process | None:
        """The living process of a run."""
        begun = self._begun(run)
        if begun is None:
            return None
        pid, noted = begun
        try:
            process = psutil.Process(pid)
            alive = process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= noted + _CLOCKS_DIFFER_SECONDS
        except psutil.NoSuchProcess:
            return None
        return process if alive else None

    def _begun(self, run: dg.DagsterRun) -> tuple[int, float] | None:
        """Number of the process that began to execute a run, as it said itself, and when; None for one of another machine."""
        if PROCESS_TAG in run.tags:
            return self._commanded(run)
        place = json.loads(run.tags.get(_CODE_SERVER_TAG, "{}"))
        if "socket" not in place and place.get("host") not in _HERE:
            return None
        records = self._instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT, limit=50).records
        for entry in (record.event_log_entry for record in records):
            event = entry.dagster_event
            pid = None if event is None else event.engine_event_data.metadata.get("pid")
            if pid is not None:
                return int(str(pid.value)), entry.timestamp
        return None

    def _commanded(self, run: dg.DagsterRun) -> tuple[int, float] | None:
        host, _, pid = run.tags[PROCESS_TAG].rpartition(":")
        record = self._instance.get_run_record_by_id(run.run_id)
        if host != socket.gethostname() or record is None:
            return None
        return int(pid), record.create_timestamp.timestamp()


def process_tags() -> dict[str, str]:
    """Tags of a run that this process executes itself."""
    return {PROCESS_TAG: f"{socket.gethostname()}:{os.getpid()}"}


def end_killed_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark the runs of killed commands as failed, as the daemon's run monitoring does every few seconds; returns their ids."""
    launcher = instance.run_launcher
    if not isinstance(launcher, WatchingRunLauncher):
        return []
    going = [status for status in dg.DagsterRunStatus if status not in _ENDED]
    ended = []
    for run in instance.get_runs(dg.RunsFilter(statuses=going)):
        if PROCESS_TAG in run.tags and launcher.has_lost_process(run):
            instance.report_run_failed(run, "the command that executed the run was killed")
            ended.append(run.run_id)
    return ended


def _health(status: str, message: str | None = None) -> Any:
    """Health of a run, of the class that a launcher's method is declared to return; Dagster has no public name for it."""
    answer = get_type_hints(dg.DefaultRunLauncher.check_run_worker_health)["return"]
    return answer(get_type_hints(answer)["status"][status], message)
