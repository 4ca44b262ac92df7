"""Installations on which histories happen: project, home folder, shadow and database, and copies of all of them."""

import itertools
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.faults import power_cut
from tests.faults.facts import Facts, facts_of
from tests.faults.invariants import leftovers, violations
from tests.faults.plan import Fault, Plan
from tests.faults.worker import Ending
from tests.projects.tiny import Content, batch_text, drop, write_project

#: Seconds that a task waits for an error that passes: a few tries, as some faults never heal.
_MAX_WAIT: Final = 2.0


class Tasks(Protocol):
    """Runs steps of a history, each with the faults of a plan."""

    def run(self, settings: Settings, task: str, *arguments: Any, plan: Plan) -> Ending:
        """Run a function of ``tests.faults.tasks`` to its end."""
        ...


@dataclass
class Installation:
    """A project with a home folder and a database of its own.

    Attributes:
        folder: with ``project``, ``home`` and ``shadow``.
        tasks: run its steps: in children of a worker, or in this process.
        keeps_shadow: note all that is synced, so that a power cut can be simulated.
        log: of the tasks, their faults and endings, for people.
    """

    folder: Path
    settings: Settings
    server: RunningServer
    tasks: Tasks
    keeps_shadow: bool = False
    log: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def shadow(self) -> Path:
        return self.folder / "shadow"

    @property
    def peer(self) -> str:
        """Address of the catalog, as the library of faults knows it."""
        url = database_url(self.settings, "modyn")
        host = url.query.get("host")
        return f"{host}/" if isinstance(host, str) and host.startswith("/") else f":{url.port}"

    def deliver(self, day: int, shift: float = 0) -> None:
        """Deliver the file of a day, or correct it."""
        drop(self.settings.project, f"day_{day:02d}", batch_text(day, shift=shift))

    def plan(self, faults: Sequence[Fault] = ()) -> Plan:
        """A new plan for the files and the catalog of this installation."""
        shadow = self.shadow if self.keeps_shadow else None
        return Plan(self.folder / f"plan_{next(self._numbers)}", self.settings.home, self.peer, shadow, faults)

    def run(self, task: str, *arguments: Any, faults: Sequence[Fault] = ()) -> Ending:
        """Run a task of ``tests.faults.tasks`` to its end, undisturbed or with faults."""
        plan = self.plan(faults)
        ending = self.tasks.run(self.settings, task, *arguments, plan=plan)
        self.log.append(f"{task} {arguments}: {ending}; {plan}")
        return ending

    def must(self, task: str, *arguments: Any) -> None:
        """Run a task without faults: it has to succeed."""
        ending = self.run(task, *arguments)
        assert ending.is_done, f"{self.story}\n{ending.error}\n{ending.traceback}"

    def keep_shadow(self) -> None:
        """From now on a power cut can be simulated; everything so far is durable."""
        self.shadow.mkdir()
        self.keeps_shadow = True
        self.must("remember_all", str(self.shadow))

    def cut_power(self) -> list[str]:
        """Leave the home folder as a power cut does; what that changed."""
        lost = power_cut.cut(self.settings.home, self.shadow)
        self.log.append(f"power cut: {len(lost)} files are other ones")
        shutil.rmtree(self.shadow)
        self.keeps_shadow = False
        self.keep_shadow()
        return lost

    @property
    def story(self) -> str:
        """Everything that happened, for the message of a failed test."""
        return "\n".join(self.log)

    def facts(self) -> Facts:
        with self._platform() as platform:
            return facts_of(platform)

    def check(self) -> None:
        """Assert the invariants that hold at every moment."""
        with self._platform() as platform:
            found = violations(platform)
        assert not found, "\n".join([self.story, *found])

    def check_settled(self) -> None:
        """Assert those that hold once an undisturbed start has ended what was begun."""
        self.check()
        with self._platform() as platform:
            found = leftovers(platform)
        assert not found, "\n".join([self.story, *found])

    @contextmanager
    def copied(self, name: str) -> Iterator["Installation"]:
        """The same installation in another folder and database; gone at the end."""
        folder = self.folder.parent / name
        shutil.copytree(self.folder / "project", folder / "project")
        shutil.copytree(self.settings.home, folder / "home")
        template = str(database_url(self.settings, "modyn").database)
        elsewhere = replace(self.settings, project=folder / "project", home=folder / "home")
        try:
            with _database(self.server, elsewhere, template) as settings:
                yield Installation(folder, settings, self.server, self.tasks)
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def _platform(self) -> Iterator[Platform]:
        platform = Platform.open(self.settings)
        try:
            yield platform
        finally:
            platform.close()


@contextmanager
def installed(
    server: RunningServer, tasks: Tasks, folder: Path, pipelines: Sequence[Content], max_wait: float = _MAX_WAIT
) -> Iterator[Installation]:
    """An installation without data."""
    project = write_project(folder / "project", pipelines)
    (folder / "home").mkdir()
    plain = replace(server.settings(project, folder / "home", ""), max_wait=max_wait)
    with _database(server, plain, TEMPLATE) as settings:
        yield Installation(folder, settings, server, tasks)


@contextmanager
def _database(server: RunningServer, settings: Settings, template: str) -> Iterator[Settings]:
    own = replace(settings, database_prefix=f"f{secrets.token_hex(4)}_")
    name = str(database_url(own, "modyn").database)
    server.create_database(name, template)
    try:
        yield own
    finally:
        server.drop_database(name)
