"""Dagster's launcher for one machine, which starts runs warm, and sees to those that nobody reports or that do not listen.

Dagster's own asks the code server that started a run's process for everything. When the two die together, the run stays
``STARTED`` for ever and holds its pool; and a process that hangs outside of Python never notices that it was cancelled. This
one looks at the process itself. Dagster's run monitoring calls it; `dagster.yaml` names it.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self, get_type_hints

import dagster as dg
import psutil

from modyn_dagster.resources.warm.client import WarmProcess

#: Host and number of the process of a run that a command executes itself, as ``<host>:<number>``.
PROCESS_TAG: Final = "modyn/process"
#: Where the code server listens that started a run's process: Dagster's tag.
_CODE_SERVER_TAG: Final = ".dagster/grpc_info"
#: Machine on which a warm process was asked for the run's process.
_WARM_TAG: Final = "modyn/warm_start"
_HERE: Final = ("localhost", "127.0.0.1")
_ENDED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
#: Longest wait for an answer of a code server.
_ASK_SECONDS: Final = 10
#: A process this much younger than the event that names its number is another one, which got the number later.
_CLOCKS_DIFFER_SECONDS: Final = 60.0


class WatchingRunLauncher(dg.DefaultRunLauncher):
    """Launches runs as Dagster's default launcher does, or from a warm process, and knows whether their processes live.

    Attributes:
        kill_after_seconds: what is cancelled and does not end by itself in that time is killed.
        warm: start runs from a process that has imported everything, where there is one; only runs of code locations that this
            process started itself, since they have its environment.
        ask_code_server: fail a run that its code server, elsewhere, does not know. For ``modyn-dagster services run code`` and
            ``dagster api grpc`` alone: behind ``dagster code-server start`` a reload brings a server that knows no living run.
    """

    def __init__(
        self, kill_after_seconds: int = 60, warm: bool = True, ask_code_server: bool = False, inst_data: Any = None
    ) -> None:
        super().__init__(inst_data)
        self.kill_after_seconds = kill_after_seconds
        self.warm = warm
        self.ask_code_server = ask_code_server
        self._warm_process = WarmProcess(self._ended)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """In `dagster.yaml`, below ``run_launcher.config``."""
        return {
            "kill_after_seconds": dg.Field(dg.Int, default_value=60),
            "warm": dg.Field(dg.Bool, default_value=True),
            "ask_code_server": dg.Field(dg.Bool, default_value=False),
        }

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        """From there."""
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: Any) -> None:
        """Start a process for a run: forked from a warm one if there is one, else as Dagster does."""
        if not (_has_our_environment(context.dagster_run) and self.is_warm() and self._launch_warm(context.dagster_run)):
            super().launch_run(context)

    def is_warm(self) -> bool:
        """True if the next run can start warm; otherwise a warm process is started, unless that is switched off."""
        return self.warm and self._warm_process.is_ready()

    def dispose(self) -> None:
        """End the warm process; runs go on."""
        self._warm_process.close()
        super().dispose()

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring asks, every ``run_monitoring.poll_interval_seconds``."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """``FAILED`` when the process of a run under way is gone; one that was never seen counts as running.

        The process itself reports how a run ended, before it goes, so a run that is not over by then has nobody left.
        """
        return health("FAILED", "the process of the run is gone") if self.has_lost_process(run) else health("RUNNING")

    def has_lost_process(self, run: dg.DagsterRun) -> bool:
        """True if the process that began a run on this machine is gone, or if a code server elsewhere, when asked, has none."""
        if self._begun(run) is None:
            return self.ask_code_server and self._is_unknown_to_its_server(run)
        return self._process(run) is None

    def terminate(self, run_id: str) -> bool:
        """Ask the run's process to end, through its code server or, where it has none, itself; kill what does not listen."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        process = self._process(run)
        if _WARM_TAG in run.tags and _CODE_SERVER_TAG not in run.tags:
            self._instance.report_run_canceling(run)
            if process is None:
                # It has not begun, and will not: a run looks at its state first.
                return True
            asked = False
        else:
            try:
                asked = super().terminate(run_id)  # type: ignore[no-untyped-call]  # Dagster has no type for it
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

    def _is_unknown_to_its_server(self, run: dg.DagsterRun) -> bool:
        """Ask the code server of another machine or container; one that was started anew knows no runs of before.

        False where it does not answer: the run may go on behind a broken connection.
        """
        place = json.loads(run.tags.get(_CODE_SERVER_TAG, "{}"))
        client = None if place.get("host") in (None, *_HERE) else self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]  # Dagster has no type for it
        if client is None:
            return False
        # Dagster has no public name for the question. A server forgets a run when its process has ended.
        question = dg.deserialize_value(json.dumps({"__class__": "CanCancelExecutionRequest", "run_id": run.run_id}))
        try:
            answer: Any = dg.deserialize_value(client.can_cancel_execution(question, timeout=_ASK_SECONDS))
        except dg.DagsterError:
            return False
        return not answer.can_cancel

    def _launch_warm(self, run: dg.DagsterRun) -> bool:
        origin = json.loads(dg.serialize_value(run.job_code_origin))
        instance = json.loads(dg.serialize_value(self._instance.get_ref()))
        arguments = {"__class__": "ExecuteRunArgs", "pipeline_origin": origin, "pipeline_run_id": run.run_id}
        # Before there is a process, so that none is ever without: whoever cancels the run or looks after it has to know.
        self._instance.add_run_tags(run.run_id, {_WARM_TAG: socket.gethostname()})
        return self._warm_process.process_for(run.run_id, json.dumps(arguments | {"instance_ref": instance})) is not None

    def _ended(self, run_id: str, code: int) -> None:
        """Report a run whose process has ended without reporting it itself; a code server does the same for its own."""
        run = self._instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            self._instance.report_run_failed(run, f"the process of the run ended with exit code {code}")

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
        is_warm = run.tags.get(_WARM_TAG) == socket.gethostname()
        if not is_warm and "socket" not in place and place.get("host") not in _HERE:
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


def _has_our_environment(run: dg.DagsterRun) -> bool:
    """True if this process started the code server of a run itself, with its own Python: then its environment is this one's.

    Dagster knows the host of any other code server.
    """
    code, remote = run.job_code_origin, run.remote_job_origin
    if code is None or remote is None or code.executable_path != sys.executable:
        return False
    return not hasattr(remote.repository_origin.code_location_origin, "host")


def health(status: str, message: str | None = None) -> Any:
    """Health of a run, of the class that a launcher's method is declared to return; Dagster has no public name for it."""
    answer = get_type_hints(dg.DefaultRunLauncher.check_run_worker_health)["return"]
    return answer(get_type_hints(answer)["status"][status], message)
