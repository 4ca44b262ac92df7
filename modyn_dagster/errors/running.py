"""Errors of running pipelines: decisions, selection, training, runs, and the services beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

from fastpath.errors import Error as ModynError

_LOOK_FOR_MEMORY: Final = "look for memory (`dmesg`, `resources: {memory}`) and for native code that ends its process"
_KEPT: Final = "what is done is not done again"


class RunError(ModynError):
    """Step that a pipeline run cannot make."""


class BatchGap(RunError):
    """Selected batches that do not continue at the cursor of the run."""

    def __init__(self, run: str, cursor: str, first: str) -> None:
        super().__init__(
            f"{run} has processed batches up to {cursor!r}, but the selection begins at {first!r}; "
            "select the batches between them too, or start a new run with `restart: true`"
        )
        self.cursor, self.first = cursor, first


class LostClaim(RunError):
    """Attempt that no longer owns its trigger and must not write."""

    def __init__(self, trigger: str, attempt: int) -> None:
        super().__init__(f"trigger {trigger}: attempt {attempt} is no longer the current one; nothing was committed")
        self.trigger, self.attempt = trigger, attempt


class StaleRun(RunError):
    """Run whose cursor another process moved since it was read."""

    def __init__(self, run: str) -> None:
        super().__init__(f"another process moved the cursor of {run}; start again from the new cursor")


class WithdrawnModel(RunError):
    """Model that a deletion request replaced or withdrew under a training or selection with it, or under its evaluation."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"model {model}, that a training, a selection or an evaluation began with, saw deleted samples and was withdrawn"
        )
        self.model = model


class StalePredictions(RunError):
    """Predictions of samples that were deleted while an evaluation was under way."""

    def __init__(self, trigger: str, n_files: int) -> None:
        super().__init__(f"trigger {trigger}: {n_files} files hold predictions of samples deleted meanwhile; they are made again")
        self.trigger, self.n_files = trigger, n_files


class TriggerFailed(RunError):
    """Trigger that used up its attempts, or met a permanent error; the run waits for an operator."""

    def __init__(self, pipeline: str, trigger: str, attempt: int, reason: str) -> None:
        super().__init__(
            f"{pipeline}: trigger {trigger} failed at attempt {attempt}: {reason}; "
            f"after the fix run `modyn-dagster pipeline resume {pipeline}`"
        )
        self.trigger, self.attempt, self.reason = trigger, attempt, reason


class StillFailing(RunError):
    """Transient error that did not pass while it was waited for."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(
            f"{reason} (still so after {seconds:.0f} s of waiting, MODYN_MAX_WAIT); after the fix launch again what has failed"
        )
        self.seconds = seconds


class ModelsMissing(RunError):
    """Finished replay without the models of some triggers, which failed under ``on_failure: continue``."""

    def __init__(self, run: str, pipeline: str, failed: int, total: int, trigger: str, reason: str) -> None:
        super().__init__(
            f"{run} is finished, but {failed} of {total} triggers failed and have no model, the last one {trigger} ({reason}); "
            f"after the fix `modyn-dagster pipeline replay {pipeline} --restart` trains all of them"
        )
        self.failed, self.total = failed, total


class CheckFailed(RunError):
    """Blocking check of a trigger asset that failed."""

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(f"check {check!r} failed: {reason}")
        self.check, self.reason = check, reason


class WorkerLost(RunError):
    """Process of a pool or a group that died over its work.

    Args:
        work: its work.
        cause: what is known of its end.
        remedy: where to look.
    """

    def __init__(self, work: str, cause: str, remedy: str = _LOOK_FOR_MEMORY) -> None:
        super().__init__(f"{work}: a worker process died ({cause}); {remedy}, then start again: {_KEPT}")
        self.work, self.cause = work, cause


class RanksApart(WorkerLost):
    """Rank that does not reach another one: that one ended, hangs, or cannot be reached over the network.

    Args:
        work: the rank.
        seconds: longest wait for another rank.
        cause: error of the library that carries the messages.
    """

    def __init__(self, work: str, seconds: float, cause: str) -> None:
        RunError.__init__(
            self,
            f"{work}: another rank ended, or did not answer within {seconds:g} s ({cause}); look at the end of the other ranks, "
            "and whether their machines reach each other over the interface that GLOO_SOCKET_IFNAME (between GPUs "
            f"NCCL_SOCKET_IFNAME) names on each, then start again: {_KEPT}",
        )
        self.work, self.cause = work, cause


class NoRoom(RunError):
    """Machine or cluster that is too small, or stays too busy, for what a run reserves."""

    def __init__(self, work: str, wanted: str, found: str) -> None:
        super().__init__(
            f"{work} needs {wanted}: {found}; ask for less (`resources` of the pipeline), wait until other runs have ended, "
            "or add a machine"
        )
        self.work, self.wanted, self.found = work, wanted, found


class NotDelivered(ModynError):
    """Event that a channel of ``notify`` did not take; a later call tries again."""

    def __init__(self, channel: str, target: str, reason: str) -> None:
        super().__init__(f"{target} {reason}")
        self.channel, self.target, self.reason = channel, target, reason


class ChannelAway(NotDelivered):
    """Channel that cannot be reached, or takes no events for now: others need not be tried in the same run."""


class DeliveryRefused(NotDelivered):
    """Event that a channel would refuse at every try."""


class ServiceError(ModynError):
    """Base of the errors of the programs that `modyn-dagster ui` and `services run` keep running."""


class ServiceFailed(ServiceError):
    """Program that ended, or never answered; ``tail`` is the end of its log."""

    def __init__(self, service: str, what: str, log: Path, tail: str) -> None:
        end = f", which ends with:\n{tail}" if tail else " (empty)"
        super().__init__(
            f"{service} {what}, so all were stopped; start `modyn-dagster ui` again after the fix. Its log is {log}{end}"
        )
        self.service, self.log = service, log


class ServiceEnded(ServiceError):
    """Program in the foreground that ended by itself; its own output is above."""

    def __init__(self, service: str, what: str) -> None:
        super().__init__(f"{service} {what}; its output above says why. Start it again after the fix")
        self.service, self.what = service, what


class AlreadyRunning(ServiceError):
    """Second `modyn-dagster ui`, or second service of a name on one machine, for the same MODYN_HOME."""

    def __init__(self, holder: str, command: str = "ui") -> None:
        super().__init__(
            f"`modyn-dagster {command}` is already running: {holder}; stop it with Ctrl-C there, or set another MODYN_HOME"
        )
        self.holder = holder


class TrackingError(ModynError):
    """MLflow server that is unreachable or refuses.

    MLflow only shows the content of the catalog, so pipelines go on, and the next sync repairs it. ``address`` never contains
    a password.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"MLflow at {address}: {reason}; nothing is lost, the next sync adds what is missing there")
        self.address, self.reason = address, reason


class TrackingSilence(TrackingError):
    """MLflow server that has not answered within ``seconds``."""

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__(address, f"no answer within {seconds:g} s (MODYN_MLFLOW_TIMEOUT)")
        self.seconds = seconds


class TickHangs(RunError):
    """Tick of a sensor that does not end; ``place`` is the function that it is in."""

    def __init__(self, sensor: str, seconds: float, place: str) -> None:
        super().__init__(
            f"{sensor}: a tick has not ended for {seconds:.0f} s, it is in {place}; nothing is decided until it ends: "
            "correct what hangs and reload the code location, or restart the daemon"
        )
        self.sensor, self.place = sensor, place


class LawBroken(ModynError):
    """Policy, strategy or detector on trial that breaks a law, so that its results may not be reproducible.

    ``stream`` is the name of the generated stream or window, ``decision`` the number of a policy's decision, or of a
    detector's value, on it, from 0.
    """

    def __init__(self, law: str, stream: str, decision: int | None, what: str) -> None:
        place = f"window {stream!r}" if decision is None else f"stream {stream!r}, decision {decision}"
        super().__init__(f"{law}: broken on the {place}: {what}")
        self.law, self.stream, self.decision = law, stream, decision


class SelectionError(ModynError):
    """Training set that cannot be selected."""


class ChoiceRefused(SelectionError):
    """Choice of a user's strategy or statement that breaks a law of strategies; nothing is written.

    ``source`` is the pipeline, ``field`` the one that names the user's code.
    """

    def __init__(self, source: str, field: str, law: str, what: str) -> None:
        super().__init__(f"{source}: {field}: {law}: {what}")
        self.source, self.field, self.law, self.what = source, field, law, what


class BadScore(SelectionError):
    """Sample score that is negative or not a number, and so no weight."""

    def __init__(self, key: int, score: float) -> None:
        super().__init__(f"the score of the sample with key {key} is {score}; scores must be finite and not negative")
        self.key, self.score = key, score


class TrainingError(ModynError):
    """Training that cannot go on; the previous model stays active."""


class BadSample(TrainingError):
    """Sample on which a parser fails: ``key`` of ``dataset``, whose bytes begin at ``offset`` of the file ``path``.

    ``dataset``, ``path`` and ``offset`` are None for samples that do not come from files.
    """

    def __init__(
        self,
        parser: str,
        key: int,
        reason: str,
        *,
        dataset: str | None = None,
        path: PurePath | str | None = None,
        offset: int | None = None,
    ) -> None:
        sample = f"the sample with key {key}" + (f" of dataset {dataset}" if dataset is not None else "")
        place = f" ({path}, offset {offset})" if path is not None else ""
        super().__init__(f"{parser} failed on {sample}{place}: {reason}")
        self.key, self.reason, self.dataset, self.offset = key, reason, dataset, offset
        self.path = None if path is None else str(path)


class WrongShape(TrainingError):
    """Array of a wrong shape, returned by user code (``what``: a model, a loss, a parser)."""

    def __init__(self, expected: Sequence[int | str], found: Sequence[int], what: str = "the model") -> None:
        super().__init__(f"{what} returned shape {tuple(found)}, expected ({', '.join(map(str, expected))})")
        self.expected, self.found = tuple(expected), tuple(found)


class NonFiniteLoss(TrainingError):
    """NaN or infinite loss; ``norms`` are those of the weights and the gradient before it."""

    def __init__(self, step: int, loss: float, keys: Sequence[int], norms: Mapping[str, float]) -> None:
        shown = ", ".join(map(str, keys[:5])) + (", …" if len(keys) > 5 else "")
        sizes = ", ".join(f"the norm of {name} {norm:.4g}" for name, norm in norms.items())
        super().__init__(f"the loss is {loss} at step {step} (keys {shown}; {sizes}); lower the learning rate or check the data")
        self.step, self.keys, self.norms = step, list(keys), dict(norms)
