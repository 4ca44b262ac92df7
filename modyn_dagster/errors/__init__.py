"""Errors of the package, as one tree; each carries its fields, and its message says what to do.

`error_class` tells transient errors, which are waited out, and permanent ones, which come again with every attempt, from others.

``ModynError`` is ``fastpath.errors.Error``: the fast path raises errors of the same tree.

ModynError
├─ ConfigError            (source, field, value, rule)   a value of a spec, an option or a setting is impossible
│  ├─ NotJson             (source, field, value, rule)   a value that JSON cannot hold
│  ├─ ImportPathError     (source, field, value, rule)   user code that cannot be imported or called
│  └─ MissingExtra        (package, extra)               a spec needs a library that an extra installs
├─ MissingPackage         (package, extra)               a part of this package needs a library that an extra installs
├─ DataError              (file, row, column)            a batch that cannot be ingested; it fails, others go on
│  ├─ DuplicateFile       (file, batch)
│  ├─ SchemaMismatch      (file, expected, found)
│  ├─ ChangedBatch        (file, expected, found)        an ingested file whose content has changed
│  └─ UnexpectedFault     (file, kind, traceback)        an exception that nobody foresaw, contained in its batch
├─ CatalogError
│  ├─ DatabaseDown        (address)
│  ├─ DatabaseFull        (address)                      no room on the server's disk
│  ├─ ServerFailed                                       the embedded server cannot be set up, started or stopped
│  ├─ SchemaOutdated      (found, expected)
│  └─ UnknownName         (kind, name, known)
├─ StorageError           ``fastpath.errors.StoreError``
│  ├─ UnknownKey          (key, dataset)
│  ├─ DeletedKey          (key, dataset, path, offset)
│  ├─ CorruptFile         (path, expected, found, key, offset, dataset)
│  ├─ UnknownModel        (model, root)
│  ├─ ModelInUse          (model, children)              other models depend on it
│  ├─ WeightsNotStored    (model)                        a model that must be retrained
│  ├─ NotReproducible     (field, expected, found)       a model cannot be retrained bit for bit
│  │  └─ NotAllowed       (train, allow)                 the store does not run this function
│  ├─ ReportChanged       (path, fault)                  a report of a deletion that is not what was signed
│  └─ WriteFailed         (path)                         disk full and the like
├─ TrainingError          (step)
│  ├─ BadSample           (dataset, key, path, offset)   a parser fails on the bytes of a sample
│  ├─ WrongShape          (expected, found)
│  └─ NonFiniteLoss       (step, keys)
├─ NotDelivered           (channel, target, reason)      an event that a channel of `notify` did not take
│  ├─ ChannelAway                                        nor would it take others now
│  └─ DeliveryRefused                                    nor would it take this one at another try
├─ ServiceError
│  ├─ ServiceFailed       (service, log)                 a program of `modyn-dagster ui` ended or does not answer
│  ├─ ServiceEnded        (service, what)                a program of `modyn-dagster services run` ended by itself
│  └─ AlreadyRunning      (holder)                       only one `modyn-dagster ui`, or service of a name, per MODYN_HOME
├─ SelectionError                                        a training set cannot be selected
│  ├─ ChoiceRefused       (source, field, law)           the choice of a user's strategy breaks a law of strategies
│  └─ BadScore            (key, score)                   a sample weight that is negative or not a number
├─ LawBroken              (law, stream, decision)        a triggering policy or selection strategy on trial breaks a law
├─ TrackingError          (address)                      MLflow is unreachable or refuses; the catalog has everything
├─ ServingError                                          a model cannot be served; the one loaded before goes on
│  ├─ VersionUnavailable  (name, reason)                 MLflow is away, or the version or its record is missing
│  └─ WrongInput          (model, column)                an input that does not fit the model
└─ RunError
   ├─ BatchGap            (cursor, first)                a replay selection that skips batches
   ├─ LostClaim           (trigger, attempt)             another attempt owns the trigger
   ├─ StaleRun            (run)                          another process moved the cursor of the run
   ├─ WithdrawnModel      (model)                        a model that a deletion request replaced while it was used
   ├─ StalePredictions    (trigger, n_files)             samples were deleted while they were predicted
   ├─ TriggerFailed       (trigger, attempt)
   ├─ ModelsMissing       (failed, total)                a replay that went on without the models of failed triggers
   ├─ StillFailing        (seconds)                      a transient error that did not pass in time
   ├─ WorkerLost          (work, cause)                  a process of a pool or a group of ranks died over its work
   │  └─ RanksApart                                      a rank does not reach another one
   ├─ NoRoom              (work, wanted, found)          a machine or cluster without the resources that a run reserves
   └─ CheckFailed         (check)                        a blocking check of a trigger asset
"""

from fastpath.errors import Error as ModynError
from modyn_dagster.errors.classification import ErrorClass, error_class, is_permanent, is_transient
from modyn_dagster.errors.inputs import (
    ChangedBatch,
    ConfigError,
    DataError,
    DuplicateFile,
    ImportPathError,
    MissingExtra,
    MissingPackage,
    NotJson,
    SchemaMismatch,
    UnexpectedFault,
    one_line,
    shortened,
    without_secrets,
)
from modyn_dagster.errors.running import (
    AlreadyRunning,
    BadSample,
    BadScore,
    BatchGap,
    ChannelAway,
    CheckFailed,
    ChoiceRefused,
    DeliveryRefused,
    LawBroken,
    LostClaim,
    ModelsMissing,
    NonFiniteLoss,
    NoRoom,
    NotDelivered,
    RanksApart,
    RunError,
    SelectionError,
    ServiceEnded,
    ServiceError,
    ServiceFailed,
    StalePredictions,
    StaleRun,
    StillFailing,
    TickHangs,
    TrackingError,
    TrackingSilence,
    TrainingError,
    TriggerFailed,
    WithdrawnModel,
    WorkerLost,
    WrongShape,
)
from modyn_dagster.errors.serving import ServingError, VersionUnavailable, WrongInput
from modyn_dagster.errors.storage import (
    CatalogError,
    CorruptFile,
    DatabaseDown,
    DatabaseFull,
    DeletedKey,
    ModelInUse,
    NotAllowed,
    NotReproducible,
    ReportChanged,
    SchemaOutdated,
    ServerFailed,
    StorageError,
    UnknownKey,
    UnknownModel,
    UnknownName,
    WeightsNotStored,
    WriteFailed,
)

__all__ = [
    "AlreadyRunning",
    "BadSample",
    "BadScore",
    "BatchGap",
    "CatalogError",
    "ChangedBatch",
    "ChannelAway",
    "CheckFailed",
    "ChoiceRefused",
    "ConfigError",
    "CorruptFile",
    "DataError",
    "DatabaseDown",
    "DatabaseFull",
    "DeletedKey",
    "DeliveryRefused",
    "DuplicateFile",
    "ErrorClass",
    "ImportPathError",
    "LawBroken",
    "LostClaim",
    "MissingExtra",
    "MissingPackage",
    "ModelInUse",
    "ModelsMissing",
    "ModynError",
    "NoRoom",
    "NonFiniteLoss",
    "NotAllowed",
    "NotDelivered",
    "NotJson",
    "NotReproducible",
    "RanksApart",
    "ReportChanged",
    "RunError",
    "SchemaMismatch",
    "SchemaOutdated",
    "SelectionError",
    "ServerFailed",
    "ServiceEnded",
    "ServiceError",
    "ServiceFailed",
    "ServingError",
    "StalePredictions",
    "StaleRun",
    "StillFailing",
    "StorageError",
    "TickHangs",
    "TrackingError",
    "TrackingSilence",
    "TrainingError",
    "TriggerFailed",
    "UnexpectedFault",
    "UnknownKey",
    "UnknownModel",
    "UnknownName",
    "VersionUnavailable",
    "WeightsNotStored",
    "WithdrawnModel",
    "WorkerLost",
    "WriteFailed",
    "WrongInput",
    "WrongShape",
    "error_class",
    "is_permanent",
    "is_transient",
    "one_line",
    "shortened",
    "without_secrets",
]
