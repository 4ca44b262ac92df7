"""A pipeline run cannot go on, or a service beside it is not there."""

from pathlib import Path

from modyn_dagster.errors.base import ModynError


class RunError(ModynError):
    """A pipeline run cannot make this step."""


class BatchGap(RunError):
    """A selection of batches that does not continue where the run stands."""

    def __init__(self, run: str, cursor: str, first: str) -> None:
        super().__init__(
            f"{run} stands after batch {cursor!r}, the selection goes on at {first!r}; "
            "select the batches between them too, or start a new run with `restart: true`"
        )
        self.cursor, self.first = cursor, first


class LostClaim(RunError):
    """Another attempt owns the trigger now; this one must not write."""

    def __init__(self, trigger: str, attempt: int) -> None:
        super().__init__(f"trigger {trigger}: attempt {attempt} is no longer the current one; nothing was committed")
        self.trigger, self.attempt = trigger, attempt


class StaleRun(RunError):
    """The run's cursor was moved by another process since it was read."""

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} was moved on by another process; start again from its new cursor")


class TriggerFailed(RunError):
    """A trigger used up its attempts and the run waits for an operator."""

    def __init__(self, pipeline: str, trigger: str, attempts: int, reason: str) -> None:
        super().__init__(
            f"{pipeline}: trigger {trigger} failed {attempts} times, last: {reason}; "
            f"after the fix run `modyn-dagster pipeline resume {pipeline}`"
        )
        self.trigger, self.attempts, self.reason = trigger, attempts, reason


class CheckFailed(RunError):
    """A blocking check of a trigger asset did not pass."""

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(f"check {check!r} failed: {reason}")
        self.check, self.reason = check, reason


class ServiceError(ModynError):
    """The programs that `modyn-dagster ui` runs cannot be kept up."""


class ServiceFailed(ServiceError):
    """A program ended, or never answered; ``tail`` is the end of its log."""

    def __init__(self, service: str, what: str, log: Path, tail: str) -> None:
        end = f", which ends with:\n{tail}" if tail else " (empty)"
        super().__init__(
            f"{service} {what}, so all were stopped; start `modyn-dagster ui` again after the fix. Its log is {log}{end}"
        )
        self.service, self.log = service, log


class AlreadyRunning(ServiceError):
    """Another process does this already for the same folder of state."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"`modyn-dagster ui` is already running: {holder}; stop it with Ctrl-C there, or set another MODYN_HOME")
        self.holder = holder


class TrackingError(ModynError):
    """MLflow cannot be reached or refuses. It only shows what the catalog has, so work goes on and the next sync makes it up.

    ``address`` never holds a password.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"MLflow at {address}: {reason}; nothing is lost, the next sync shows what is missing there")
        self.address, self.reason = address, reason
