"""Everything that can go wrong, as one tree; each error carries its fields.

ModynError
├─ ConfigError            (source, field, value, rule)   a spec, an option or a setting is impossible
│  ├─ NotJson             (source, field, value, rule)   a value that JSON cannot hold
│  ├─ ImportPathError     (pipeline, field, path)        user code that cannot be imported or called
│  └─ MissingExtra        (package, extra)               a spec asks for a library that an extra installs
├─ DataError              (file, row, column)            a batch that cannot be ingested; it fails, others go on
│  ├─ DuplicateFile       (file, batch)
│  ├─ SchemaMismatch      (file, expected, found)
│  └─ ChangedBatch        (file, expected, found)        an ingested file whose content is now different
├─ CatalogError
│  ├─ DatabaseDown        (address)
│  ├─ ServerFailed                                    the embedded server cannot be set up, started or stopped
│  ├─ SchemaOutdated      (found, expected)
│  └─ UnknownName         (kind, name, known)
├─ StorageError
│  ├─ UnknownKey          (key, dataset)
│  ├─ DeletedKey          (key, dataset; path and offset where known)
│  ├─ UnknownModel        (model, root)
│  ├─ ModelInUse          (model, children)              other models cannot be had without it
│  ├─ WeightsNotStored    (model)                        a model that can only be trained again
│  ├─ NotReproducible     (field, expected, found)       a model cannot be trained again as it was
│  │  └─ NotAllowed       (train, allow)                 the store does not run this function
│  ├─ CorruptFile         (path, expected, found; key, offset and dataset where a sample was read)
│  └─ WriteFailed         (path)                         disk full and the like
├─ TrainingError          (step)
│  ├─ BadSample           (dataset, key, path, offset)   a parser cannot make arrays of a sample's bytes
│  ├─ WrongShape          (expected, found)
│  └─ NonFiniteLoss       (step, keys)
├─ ServiceError
│  ├─ ServiceFailed       (service, log)                 a program of `modyn-dagster ui` ended or does not answer
│  └─ AlreadyRunning      (holder)                       only one `modyn-dagster ui` per MODYN_HOME
├─ SelectionError                                     a training set cannot be selected
│  └─ BadScore            (key, score)                   what samples are weighted by is negative or no number
├─ LawBroken              (law, stream, decision)      a triggering policy on trial breaks a law of policies
├─ TrackingError          (address)                      MLflow is not there or refuses; the catalog has everything
└─ RunError
   ├─ BatchGap            (cursor, first)                a replay selection that leaves batches out
   ├─ LostClaim           (trigger, attempt)             another attempt owns the trigger now
   ├─ StaleRun            (run)                          somebody else moved the run's cursor
   ├─ TriggerFailed       (trigger, attempts)
   └─ CheckFailed         (check)                        a blocking check of a trigger asset
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

_USER: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """A URL, or a message that may hold one, without user, password, query, and these texts.

    >>> without_secrets("sftp://ann:pass@host/models?token=1")
    'sftp://host/models'
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("", _USER.sub("", text))


class ModynError(Exception):
    """Base of all errors of this package; its text says what to do."""


class ConfigError(ModynError):
    """A value of a spec, an option or a setting is impossible.

    ``source`` is the file or object it stands in, ``field`` the dotted path inside it.
    """

    def __init__(self, source: str, field: str, value: object, rule: str) -> None:
        super().__init__(f"{source}: {field}: {rule} (found {value!r})")
        self.source, self.field, self.value, self.rule = source, field, value, rule


class NotJson(ConfigError, TypeError, ValueError):
    """A value that is stored as JSON would not come back as it is."""


class ImportPathError(ConfigError):
    """User code named by an import path cannot be imported or is not callable."""


class MissingExtra(ConfigError):
    """A spec asks for a library that is installed only with an extra of this package."""

    def __init__(self, source: str, field: str, value: object, *, package: str, extra: str) -> None:
        rule = f"needs {package}, which is not installed; run `pip install 'modyn-dagster[{extra}]'`"
        super().__init__(source, field, value, rule)
        self.package, self.extra = package, extra


class DataError(ModynError):
    """A batch cannot be ingested. ``row`` counts data rows from 1, ``column`` is its name."""

    def __init__(self, file: str, message: str, *, row: int | None = None, column: str | None = None) -> None:
        place = file
        place += f", row {row}" if row is not None else ""
        place += f", column {column!r}" if column is not None else ""
        super().__init__(f"{place}: {message}")
        self.file, self.row, self.column, self.message = file, row, column, message


class DuplicateFile(DataError):
    """A path belongs to one batch only."""

    def __init__(self, file: str, batch: str) -> None:
        super().__init__(file, f"duplicate file, it already belongs to batch {batch!r}")
        self.batch = batch


class SchemaMismatch(DataError):
    """Columns or dtypes differ from the dataset's; both are named."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(file, f"columns differ from the dataset's: expected {expected}, found {found}")
        self.expected, self.found = expected, found


class ChangedBatch(DataError):
    """An ingested batch is immutable; corrected content comes as a new batch."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            file,
            f"the content changed after it was ingested (checksum {expected}, now {found}); "
            "restore it, or deliver the corrected content as a new file",
        )
        self.expected, self.found = expected, found


class CatalogError(ModynError):
    """Postgres cannot answer."""


class DatabaseDown(CatalogError):
    """No connection to Postgres. ``address`` never holds a password."""

    def __init__(self, address: str, reason: str = "") -> None:
        detail = f" ({reason})" if reason else ""
        super().__init__(
            f"Postgres at {address} does not answer{detail}; start it with `modyn-dagster db start`, "
            "or set MODYN_POSTGRES_URL to a server that runs"
        )
        self.address = address


class ServerFailed(CatalogError):
    """The embedded Postgres server cannot be set up, started or stopped."""


class SchemaOutdated(CatalogError):
    """The schema in the database is not the one this code needs; ``newer`` when only later code knows it."""

    def __init__(self, found: str | None, expected: str, *, newer: bool = False) -> None:
        remedy = "update modyn-dagster" if newer else "run `modyn-dagster db upgrade`"
        super().__init__(f"the database schema is at revision {found or 'none'}, this version needs {expected}; {remedy}")
        self.found, self.expected, self.newer = found, expected, newer


class UnknownName(CatalogError, LookupError):
    """A dataset, pipeline, run, batch or trigger that does not exist."""

    def __init__(self, kind: str, name: object, known: Sequence[str] = ()) -> None:
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"no {kind} {name!r}{hint}")
        self.kind, self.name, self.known = kind, name, list(known)


class StorageError(ModynError):
    """A file of ours cannot be read or written."""


class UnknownKey(StorageError, LookupError):
    """No sample has this key."""

    def __init__(self, key: int, dataset: str) -> None:
        super().__init__(f"{dataset}: no sample with key {key} (batch {key >> 32}, position {key & 0xFFFFFFFF})")
        self.key, self.dataset = key, dataset


class DeletedKey(StorageError, LookupError):
    """The sample with this key was deleted: it is not read, trained on or judged any more.

    Where known, ``path`` and ``offset`` say in which file it began where.
    """

    def __init__(self, key: int, dataset: str, path: PurePath | str | None = None, offset: int | None = None) -> None:
        place = "" if path is None else f", byte {offset} of {path}"
        super().__init__(
            f"{dataset}: the sample with key {key} was deleted (batch {key >> 32}, position {key & 0xFFFFFFFF}{place})"
        )
        self.key, self.dataset, self.path, self.offset = key, dataset, None if path is None else str(path), offset


class UnknownModel(StorageError, LookupError):
    """The model store holds no model with this id."""

    def __init__(self, model: str, root: PurePath | str) -> None:
        super().__init__(f"{root}: no model {model!r} in this store")
        self.model, self.root = model, str(root)


class CorruptFile(StorageError):
    """A file does not hold what its checksum, its header or an index promises.

    ``key`` is that of a sample it was read for, ``offset`` where that sample begins in the file.
    """

    def __init__(
        self,
        path: PurePath | str,
        expected: str,
        found: str,
        *,
        key: int | None = None,
        offset: int | None = None,
        dataset: str | None = None,
    ) -> None:
        place = [dataset] if dataset is not None else []
        place += [f"{name} {value}" for name, value in (("key", key), ("offset", offset)) if value is not None]
        super().__init__(f"{path}: expected {expected}, found {found}" + (f" ({', '.join(place)})" if place else ""))
        self.path, self.expected, self.found = str(path), expected, found
        self.key, self.offset, self.dataset = key, offset, dataset


class ModelInUse(StorageError):
    """A model cannot be deleted: ``children`` need its file, or its weights to train on from."""

    def __init__(self, model: str, children: Sequence[str], remedy: str) -> None:
        shown = ", ".join(children[:3]) + (", …" if len(children) > 3 else "")
        super().__init__(f"model {model} is needed by {len(children)} others ({shown}); {remedy}")
        self.model, self.children = model, list(children)


class WeightsNotStored(StorageError):
    """A model is stored as its provenance: it can be trained again, not read."""

    def __init__(self, model: str, what: str) -> None:
        super().__init__(f"model {model} is stored without weights, {what}")
        self.model = model


class NotReproducible(StorageError):
    """A model that is stored as its provenance cannot be trained again as it was; ``field`` says what differs."""

    def __init__(self, field: str, expected: object, found: object) -> None:
        super().__init__(f"cannot be trained again: {field}: expected {expected}, found {found}")
        self.field, self.expected, self.found = field, expected, found


class NotAllowed(NotReproducible):
    """A provenance names a function outside the modules whose code the store may run."""

    def __init__(self, train: str, allow: Sequence[str]) -> None:
        allowed = f"a function below {', '.join(allow)}" if allow else "nothing, for the store was opened without allow=[…]"
        super().__init__("train", allowed, train)
        self.train, self.allow = train, list(allow)


class WriteFailed(StorageError):
    """The operating system refused a write; nothing half-written is visible."""

    def __init__(self, path: PurePath | str, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path = str(path)


class TrainingError(ModynError):
    """Training cannot go on; the previous model stays active."""


class BadSample(TrainingError):
    """A parser fails on one sample: ``key`` of ``dataset``, whose bytes begin at ``offset`` of the file ``path``.

    ``dataset``, ``path`` and ``offset`` are None where samples do not come from files.
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
    """User code (a model, a loss, a parser; ``what``) returned an array of a shape that cannot be used."""

    def __init__(self, expected: Sequence[int | str], found: Sequence[int], what: str = "the model") -> None:
        super().__init__(f"{what} returned shape {tuple(found)}, expected ({', '.join(map(str, expected))})")
        self.expected, self.found = tuple(expected), tuple(found)


class NonFiniteLoss(TrainingError):
    """The loss became NaN or infinite; ``norms`` are those of the weights and of the gradient before."""

    def __init__(self, step: int, loss: float, keys: Sequence[int], norms: Mapping[str, float]) -> None:
        shown = ", ".join(map(str, keys[:5])) + (", …" if len(keys) > 5 else "")
        sizes = ", ".join(f"the norm of {name} {norm:.4g}" for name, norm in norms.items())
        super().__init__(f"the loss is {loss} at step {step} (keys {shown}; {sizes}); lower the learning rate or check the data")
        self.step, self.keys, self.norms = step, list(keys), dict(norms)


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


class SelectionError(ModynError):
    """A training set cannot be selected."""


class BadScore(SelectionError):
    """The score that a sample is weighted by is negative or no number."""

    def __init__(self, key: int, score: float) -> None:
        super().__init__(f"the score of the sample with key {key} is {score}; scores must be finite and not negative")
        self.key, self.score = key, score


class LawBroken(ModynError):
    """A triggering policy breaks a law that every policy obeys: its decisions cannot be trusted to be reproducible.

    ``stream`` is the name of the generated stream, ``decision`` the number of the decision on it, from 0.
    """

    def __init__(self, law: str, stream: str, decision: int, what: str) -> None:
        super().__init__(f"{law}: not on the stream {stream!r}, decision {decision}: {what}")
        self.law, self.stream, self.decision = law, stream, decision


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
