"""Tasks in the process of the tests, with the faults that Python's audit of its calls can strike: no library, no children.

Those calls open, rename, remove and make files. A kill is an interrupt, as of Ctrl-C. Writes, sockets, the clock and everything
below Python pass by; ``worker`` disturbs these.
"""

import errno
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.errors import ModynError
from modyn_dagster.settings import Settings
from tests.faults import tasks
from tests.faults.plan import Fault, Plan
from tests.faults.worker import Ending

#: Events of the audit, and the calls of ``plan.CALLS`` that they stand for.
_CALLS: Final[Mapping[str, str]] = {
    "open": "open",
    "os.rename": "rename",
    "os.remove": "remove",
    "os.mkdir": "mkdir",
    "os.truncate": "truncate",
}
#: The C library sees about so many calls where the audit sees one: faults come that much sooner.
_SOONER: Final = 10


class AuditedTasks:
    """Runs tasks one at a time in this process. A hook of the audit stays for good, and sleeps between tasks."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._seen: list[int] = []
        self._hits: list[int] = []
        sys.addaudithook(self._audit)

    def run(self, settings: Settings, task: str, *arguments: Any, plan: Plan) -> Ending:
        """Run a function of ``tests.faults.tasks`` to its end, under a plan."""
        self._seen, self._hits = ([0] * len(plan.faults) for _ in range(2))
        self._plan = plan
        try:
            getattr(tasks, task)(settings, *arguments)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the history judges it
            self._plan = None
            is_clear = isinstance(error, ModynError | OSError | KeyboardInterrupt)
            return Ending(1, f"{type(error).__name__}: {error}", is_clear, traceback.format_exc(), sum(self._hits))
        finally:
            self._plan = None
        return Ending(0, n_hits=sum(self._hits))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._plan is None or event not in _CALLS or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        plan = self._plan
        assert plan.root is not None
        path = os.fsdecode(os.fspath(arguments[0]))
        if not path.startswith(f"{plan.root}/"):
            return
        for number, fault in enumerate(plan.faults):
            if _CALLS[event] in fault.calls:
                self._seen[number] += 1
                if fault.action in ("fail", "kill") and self._strikes(number, fault):
                    self._hits[number] += 1
                    raise KeyboardInterrupt if fault.action == "kill" else _error(fault, path)

    def _strikes(self, number: int, fault: Fault) -> bool:
        return self._seen[number] > fault.after // _SOONER and (not fault.times or self._hits[number] < fault.times)


def _error(fault: Fault, path: str) -> OSError:
    number = getattr(errno, fault.error)
    return OSError(number, os.strerror(number), path)
