"""MLflow behind a replay: told by a process of its own while the replay goes on, which waits for it only at its end."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from modyn_dagster.assets.tracking.links import page_of
from modyn_dagster.errors import ModynError, TrackingError
from modyn_dagster.resources.mlflow import MlflowResource

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.mlflow.process import Shown, TrackerProcess

#: Seconds between two questions: what is named meanwhile is shown together, and a trigger once instead of at each of its stages.
_REST: Final = 3.0


class TrackingBehind:
    """Shows one run and its triggers in MLflow, in the order they are named.

    After the first failure nothing more is shown: the catalog notes the triggers that are missing, and the next sync of their run
    makes up for them. Triggers named while the process is busy, or rests, are shown together, each once.
    """

    def __init__(self, context: dg.AssetExecutionContext, process: "TrackerProcess | None", platform: "Platform") -> None:
        self._context = context
        self._platform = platform
        self._process = process
        self._dagster = context.run.run_id, page_of(context.run.run_id)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mlflow")
        self._lock, self._hurried = Lock(), Event()
        self._named: dict[int, str] = {}
        self._pages: dict[str, str] = {}
        self._asked: list[Future[None]] = []
        self._run_page: str | None = None
        self._failure: TrackingError | None = None

    def name_run(self, run: "RunRow") -> None:
        """Have a pipeline run shown as its rows are by then."""
        self._ask(lambda process: self._show_run(process, run.id))

    def name_trigger(self, shown: "TriggerContext") -> None:
        """Have a trigger shown as its rows are by then."""
        with self._lock:
            waits = bool(self._named)
            self._named[shown.trigger.id] = shown.trigger.partition_key
        if not waits:
            self._ask(lambda process: self._show_triggers(process, shown.run.id))

    @property
    def run_page(self) -> str | None:
        """Page of the run; None before it is shown, and where MLflow is off or does not answer."""
        return self._run_page

    def trigger_page(self, partition_key: str) -> str | None:
        """Page of a trigger that was named; None before it is shown, and where MLflow is off or does not answer."""
        return self._pages.get(partition_key)

    @property
    def is_off(self) -> bool:
        """True if no more pages come: MLflow is off, or does not answer."""
        return self._process is None or self._failure is not None

    def hurry(self) -> None:
        """Show without rests what is named from here on: little else is left to do."""
        self._hurried.set()

    def wait(self) -> None:
        """Wait until all that was named is shown; warn once where it cannot be."""
        rests_again = not self._hurried.is_set()
        self._hurried.set()
        asked, self._asked = self._asked, []
        for future in asked:
            future.result()
        if rests_again:
            self._hurried.clear()
        if self._failure is not None and self._process is not None:
            self._context.log.warning(f"not shown in MLflow: {self._failure}")
            self._process = None
        if self._failure is not None:
            self._forget()

    def close(self) -> None:
        """Wait for what was named."""
        self.hurry()
        # With a catalog that is down, no event of these triggers got through either: the next launch names them again.
        with suppress(ModynError, SQLAlchemyError):
            self.wait()
        self._thread.shutdown()

    def _ask(self, show: "Callable[[TrackerProcess], None]") -> None:
        if self._process is not None:
            self._asked.append(self._thread.submit(self._guarded, show, self._process))

    def _guarded(self, show: "Callable[[TrackerProcess], None]", process: "TrackerProcess") -> None:
        if self._failure is None:
            try:
                show(process)
            except TrackingError as error:
                self._failure = error
            self._hurried.wait(_REST)

    def _show_run(self, process: "TrackerProcess", run: int) -> None:
        self._run_page = self._link(process.sync_run(run, *self._dagster)).page

    def _show_triggers(self, process: "TrackerProcess", run: int) -> None:
        with self._lock:
            named, self._named = self._named, {}
        try:
            answer = process.sync_triggers(run, list(named), *self._dagster)
        except TrackingError:
            with self._lock:
                self._named = named | self._named
            raise
        for key, shown in zip(named.values(), answer, strict=True):
            self._pages[key] = self._link(shown).page

    def _link(self, shown: "Shown") -> "Shown":
        """The Dagster run links to the first MLflow run it showed, which is the replay's."""
        if self._run_page is None and not self._pages:
            self._context.instance.add_run_tags(self._context.run.run_id, {"mlflow/run_id": shown.mlflow_run})
        return shown

    def _forget(self) -> None:
        """Have the next sync of the run show the triggers that were named since the failure."""
        from modyn_dagster.catalog.triggers import forget_mlflow_runs

        with self._lock:
            named = list(self._named)
        if named:
            with self._platform.transaction() as conn:
                forget_mlflow_runs(conn, named)
        with self._lock:
            for trigger in named:
                del self._named[trigger]


@contextmanager
def tracking_behind(context: dg.AssetExecutionContext, mlflow: MlflowResource, platform: "Platform") -> Iterator[TrackingBehind]:
    """Start the process that shows a replay, and end it with the replay unless the runs of this process share it."""
    with mlflow.process(platform.settings) as process:
        links = TrackingBehind(context, process, platform)
        try:
            yield links
        finally:
            links.close()
