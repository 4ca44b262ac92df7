"""Points at which a process can be killed: around every transaction that wrote something, and every file that appears.

Nothing in the product takes part: the driver's commit and the operating system's rename are wrapped in the process
that is to die.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sqlalchemy.engine.default import DefaultDialect

Kind = Literal["commit", "rename"]
Moment = Literal["before", "after"]


@dataclass(frozen=True)
class Point:
    """The ``number``-th commit or rename of a process, counted from 0, and on which side of it to die."""

    kind: Kind
    number: int
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.kind} {self.number}"


@dataclass
class Watch:
    """Counts commits to one database and renames below one folder; acts when ``point`` is reached.

    With a ``table`` only commits count that wrote rows of it.
    """

    database: str
    folder: Path
    point: Point | None = None
    table: str = ""
    act: Callable[[], None] = field(default=lambda: os.kill(os.getpid(), signal.SIGKILL))
    passed: list[str] = field(default_factory=list)
    _counts: dict[Kind, int] = field(default_factory=lambda: {"commit": 0, "rename": 0})

    def install(self) -> None:
        """For the rest of this process's life."""
        commit: Callable[[DefaultDialect, Any], None] = DefaultDialect.do_commit
        replace = os.replace

        def watched_commit(dialect: DefaultDialect, connection: Any) -> None:
            writes = self._writes(connection)
            if writes:
                self._reach("commit", "before")
            commit(dialect, connection)
            if writes:
                self._reach("commit", "after")

        def watched_replace(source: Any, target: Any, **options: Any) -> None:
            ours = Path(target).is_relative_to(self.folder)
            if ours:
                self._reach("rename", "before")
            replace(source, target, **options)
            if ours:
                self._reach("rename", "after")

        setattr(DefaultDialect, "do_commit", watched_commit)  # noqa: B010 - mypy refuses the assignment
        os.replace = watched_replace  # type: ignore[assignment]  # narrower than what it stands for

    def _reach(self, kind: Kind, moment: Moment) -> None:
        here = Point(kind, self._counts[kind], moment)
        self.passed.append(str(here))
        if here == self.point:
            self.act()
        if moment == "after":
            self._counts[kind] += 1

    def _writes(self, connection: Any) -> bool:
        """True if the open transaction changed or locked a row of our database; asking assigns it no number."""
        raw = connection.dbapi_connection
        if getattr(getattr(raw, "info", None), "dbname", None) != self.database or raw.autocommit:
            return False
        with raw.cursor() as cursor:
            if self.table:
                # Held by those that insert, update or delete rows, to the end of their transaction.
                cursor.execute(
                    "select exists (select from pg_locks join pg_class on pg_class.oid = relation "
                    "where pid = pg_backend_pid() and mode = 'RowExclusiveLock' and relname = %s)",
                    [self.table],
                )
            else:
                cursor.execute("select pg_current_xact_id_if_assigned() is not null")
            return bool(cursor.fetchone()[0])


def points_of(passed: list[str]) -> list[Point]:
    """The points an undisturbed process passed, to be killed at one after the other."""
    points = []
    for text in passed:
        moment, kind, number = text.split()
        points.append(Point(kind, int(number), moment))  # type: ignore[arg-type]  # texts that were written as such
    return points
