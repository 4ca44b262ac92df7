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

from modyn_dagster.errors.base import ModynError, without_secrets
from modyn_dagster.errors.inputs import (
    ChangedBatch,
    ConfigError,
    DataError,
    DuplicateFile,
    ImportPathError,
    MissingExtra,
    NotJson,
    SchemaMismatch,
)
from modyn_dagster.errors.running import (
    AlreadyRunning,
    BadSample,
    BadScore,
    BatchGap,
    CheckFailed,
    LawBroken,
    LostClaim,
    NonFiniteLoss,
    RunError,
    SelectionError,
    ServiceError,
    ServiceFailed,
    StaleRun,
    TrackingError,
    TrainingError,
    TriggerFailed,
    WrongShape,
)
from modyn_dagster.errors.storage import (
    CatalogError,
    CorruptFile,
    DatabaseDown,
    DeletedKey,
    ModelInUse,
    NotAllowed,
    NotReproducible,
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
    "CheckFailed",
    "ConfigError",
    "CorruptFile",
    "DataError",
    "DatabaseDown",
    "DeletedKey",
    "DuplicateFile",
    "ImportPathError",
    "LawBroken",
    "LostClaim",
    "MissingExtra",
    "ModelInUse",
    "ModynError",
    "NonFiniteLoss",
    "NotAllowed",
    "NotJson",
    "NotReproducible",
    "RunError",
    "SchemaMismatch",
    "SchemaOutdated",
    "SelectionError",
    "ServerFailed",
    "ServiceError",
    "ServiceFailed",
    "StaleRun",
    "StorageError",
    "TrackingError",
    "TrainingError",
    "TriggerFailed",
    "UnknownKey",
    "UnknownModel",
    "UnknownName",
    "WeightsNotStored",
    "WriteFailed",
    "WrongShape",
    "without_secrets",
]
