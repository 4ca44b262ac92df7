"""Launcher that routes runs by their class: to a Ray cluster, by default replays, or to this machine.

`dagster.yaml` names it. Without its block ``ray`` it is the launcher of one machine. Dagster watches runs once they have begun;
what happens to a run of the cluster before that is seen by a thread of the process that launched it.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import dagster as dg

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.resources.run_classes import CLASS_TAG, RUN_CLASSES
from modyn_dagster.resources.run_launcher import WatchingRunLauncher, health

if TYPE_CHECKING:
    from modyn_dagster.resources.ray_jobs import RayJobs

#: Address of the head that a run was submitted to.
RAY_TAG: Final = "modyn/ray"
_FILE: Final = "dagster.yaml"
_FIELD: Final = "run_launcher.config.ray"
_LOOK_SECONDS: Final = 2.0


class RoutingRunLauncher(WatchingRunLauncher):
    """Launches runs of some classes as jobs of a Ray cluster, and all others on this machine.

    Attributes:
        kill_after_seconds, warm, ask_code_server: for runs of this machine.
        ray: block ``ray`` of `dagster.yaml`; None to launch everything here.
    """

    def __init__(
        self,
        kill_after_seconds: int = 60,
        warm: bool = True,
        ask_code_server: bool = False,
        ray: Mapping[str, Any] | None = None,
        inst_data: Any = None,
    ) -> None:
        super().__init__(kill_after_seconds, warm, ask_code_server, inst_data)
        self.ray = _jobs(ray) if ray is not None else None
        self._classes = frozenset(self.ray.settings.classes) if self.ray is not None else frozenset()
        self._lost_since: dict[str, float] = {}
        self._starting: dict[str, float] = {}
        self._changed = threading.Condition()
        self._is_watching = self._closed = False

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """In `dagster.yaml`, below ``run_launcher.config``."""
        ray = {
            "address": dg.StringSource,
            "classes": dg.Field(dg.Array(dg.Enum("RunClass", [dg.EnumValue(name) for name in RUN_CLASSES])), is_required=False),
            "python": dg.Field(str, is_required=False),
            "env_vars": dg.Field(dg.Array(str), is_required=False),
            "start_seconds": dg.Field(int, is_required=False),
            "stop_seconds": dg.Field(int, is_required=False),
            "lost_seconds": dg.Field(int, is_required=False),
            "token": dg.Field(bool, is_required=False),
        }
        return super().config_type() | {"ray": dg.Field(ray, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        """From there."""
        return cls(inst_data=inst_data, **config_value)

    def register_instance(self, instance: Any) -> None:
        """Take the instance. ``ConfigError`` where Dagster would give up a run that still may wait for room."""
        super().register_instance(instance)
        if self.ray is None:
            return
        self.ray.register_instance(instance)
        ours, dagsters = self.ray.settings.start_seconds, instance.run_monitoring_start_timeout_seconds
        if instance.run_monitoring_enabled and 0 < dagsters <= ours:
            rule = f"must be above {_FIELD}.start_seconds, {ours}: else Dagster fails runs that then begin on the cluster"
            raise ConfigError(_FILE, "run_monitoring.start_timeout_seconds", dagsters, rule)

    def launch_run(self, context: Any) -> None:
        """Submit a run to the cluster, or start its process here, by its class."""
        run = context.dagster_run
        if self.ray is None or run.tags.get(CLASS_TAG, "other") not in self._classes:
            super().launch_run(context)
            return
        from modyn_dagster.resources.ray_jobs import wanted_of

        # Before there is a job, so that whoever cancels the run asks the cluster.
        self._instance.add_run_tags(run.run_id, {RAY_TAG: self.ray.settings.address})
        self.ray.submit(run)
        with suppress(Exception):
            # Advice only; the cluster may grow.
            if (found := self.ray.largest_nodes(wanted_of(run))) is not None:
                self._instance.report_engine_event(f"no node of the cluster has room for this run; its nodes: {found}", run)
        self._watch_start(run.run_id)

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """``FAILED`` when the job of a run under way has ended, or its head has been away or without knowledge of it for long."""
        if not self._is_on_ray(run):
            return super().check_run_worker_health(run)
        job, reason = self._job(run.run_id)
        if job is None:
            since = self._lost_since.setdefault(run.run_id, time.monotonic())
            is_lost = time.monotonic() - since >= self._ray.settings.lost_seconds
            return health("FAILED" if is_lost else "RUNNING", reason)
        self._lost_since.pop(run.run_id, None)
        from modyn_dagster.resources.ray_jobs import has_ended

        if not has_ended(job):
            return health("RUNNING")
        current = self._instance.get_run_by_id(run.run_id)
        # The run says how it ended before its process does.
        return health("SUCCESS") if current is None or current.is_finished else health("FAILED", self._ray.ending(job))

    def terminate(self, run_id: str) -> bool:
        """Ask a run to end; on the cluster it gets ``stop_seconds``, and is reported as canceled when its job is over.

        A run whose head is silent for ``lost_seconds`` is reported as canceled, too: it counts as lost.
        """
        run = self._instance.get_run_by_id(run_id)
        if run is None or not self._is_on_ray(run):
            return super().terminate(run_id)
        if run.is_finished:
            return False
        from modyn_dagster.resources.ray_jobs import HeadSilent

        self._instance.report_run_canceling(run)
        is_asked = False
        try:
            self._ray.stop(run_id)
            is_asked = True
        except HeadSilent as error:
            self._instance.report_engine_event(f"{error}; it is asked again for {self._ray.settings.lost_seconds} s", run)
        except OSError as error:
            self._instance.report_engine_event(str(error), run)
            return False
        # Not a daemon thread: a command that cancels ends when the run has ended.
        threading.Thread(target=self._see_to_end, args=[run_id, is_asked], name=f"end of run {run_id}").start()
        return True

    def get_run_worker_debug_info(self, run: dg.DagsterRun, include_container_logs: bool | None = True) -> str | None:
        """Describe the job of a run, for the log of a run that timed out."""
        if not self._is_on_ray(run):
            return super().get_run_worker_debug_info(run, include_container_logs)
        job, reason = self._job(run.run_id)
        return reason if job is None else self._ray.ending(job)

    def dispose(self) -> None:
        """End what watches starts; runs go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().dispose()

    @property
    def _ray(self) -> "RayJobs":
        if self.ray is None:
            raise ConfigError(_FILE, _FIELD, None, f"is needed for runs with the tag {RAY_TAG}, which are on a cluster")
        return self.ray

    def _is_on_ray(self, run: dg.DagsterRun) -> bool:
        return RAY_TAG in run.tags

    def _job(self, run_id: str) -> tuple[Any, str]:
        """Job of a run, and the reason if there is none."""
        try:
            job = self._ray.job(run_id)
        except OSError as error:
            return None, str(error)
        return job, "" if job is not None else "the head of the cluster does not know the run, as after a restart"

    def _watch_start(self, run_id: str) -> None:
        with self._changed:
            if not self._is_watching:
                self._is_watching = True
                threading.Thread(target=self._watch_starts, name="starts on Ray", daemon=True).start()
            self._starting[run_id] = time.monotonic() + self._ray.settings.start_seconds

    def _watch_starts(self) -> None:
        """Look at runs that were submitted until each has begun, or its job has ended, or has waited too long for room."""
        while True:
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
                todo = dict(self._starting)
            if self._closed:
                return
            for run_id, deadline in todo.items():
                # Storage or head may be away: the next look comes.
                with suppress(Exception):
                    if self._has_started(run_id, deadline):
                        with self._changed:
                            del self._starting[run_id]
            with self._changed:
                if not self._starting:
                    self._is_watching = False
                    return

    def _has_started(self, run_id: str, deadline: float) -> bool:
        """True if there is nothing left to wait for. Runs that did not begin are reported as failed."""
        from modyn_dagster.resources.ray_jobs import has_ended, is_waiting, wanted_of

        job, _ = self._job(run_id)
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or run.status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING):
            return True
        if job is not None and has_ended(job):
            self._instance.report_run_failed(run, f"the run did not begin: {self._ray.ending(job)}")
            return True
        if time.monotonic() < deadline or (job is not None and not is_waiting(job)):
            return False
        with suppress(OSError):
            self._ray.stop(run_id)
        wanted, seconds = wanted_of(run), self._ray.settings.start_seconds
        room = f"{wanted.cpus} CPUs, {wanted.gpus} GPUs and {wanted.memory / 1e9:.3g} GB of memory"
        why = "the head of the cluster does not answer"
        with suppress(Exception):
            found = self._ray.largest_nodes(wanted)
            why = "all nodes are busy" if found is None else f"no node is large enough: {found}"
        self._instance.report_run_failed(run, f"the cluster had no room for {room} within {seconds} s; {why}")
        return True

    def _see_to_end(self, run_id: str, is_asked: bool) -> None:
        """Report a run as canceled once its job is over, or lost with a silent head, unless it said so itself.

        Without news of the job from a head that answers, it stays as it is.
        """
        from modyn_dagster.resources.ray_jobs import HeadSilent, has_ended, is_waiting

        settings = self._ray.settings
        seconds, is_over, silence = 2 * settings.stop_seconds, False, 0.0
        asked = heard = time.monotonic()
        while not is_over and silence < settings.lost_seconds and (silence or heard < asked + seconds):
            try:
                if not is_asked:
                    self._ray.stop(run_id)
                    is_asked, asked = True, time.monotonic()
                job = self._ray.job(run_id)
                is_over = job is None or has_ended(job) or is_waiting(job)
                silence, heard = 0.0, time.monotonic()
            except HeadSilent:
                silence = time.monotonic() - heard
            except OSError:
                # A refusal is an answer, too.
                silence, heard = 0.0, time.monotonic()
            if not is_over:
                time.sleep(_LOOK_SECONDS / 4)
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return
        if is_over:
            self._instance.report_run_canceled(run, "its Ray job is over, or has not begun")
        elif silence:
            lost = (
                f"the head of the cluster has been silent for {silence:.0f} s: the run counts as lost, and its next one goes on"
            )
            self._instance.report_run_canceled(run, lost)
        else:
            self._instance.report_engine_event(f"its Ray job was to end; for {seconds} s nobody has said that it did", run)


def _jobs(block: Mapping[str, Any]) -> "RayJobs":
    """Jobs on the cluster of a block of `dagster.yaml`. ``MissingExtra`` without Ray."""
    try:
        from modyn_dagster.resources.ray_jobs import RayJobs, RaySettings
    except ModuleNotFoundError as error:
        raise MissingExtra(_FILE, _FIELD, block["address"], package="ray", extra="ray") from error
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in block.items()}
    return RayJobs(RaySettings(**fields))
