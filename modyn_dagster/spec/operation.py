"""Operation of a pipeline: display, retention, model storage, resources; no part of a run's identity."""

import re
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    field_validator,
    model_validator,
)

from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.spec.base import Duration, ImportPath, Name, Spec, TagName, TagValue

Price = Annotated[float, Field(ge=0)]


class PricesSpec(Spec):
    """Cost that `adaptive` minimises: `GB * store + seconds to save * save + recoveries * seconds to recover * recover`."""

    store: Price = 1.0
    save: Price = 0.01
    recover: Price = 0.01
    recoveries: Price = Field(1.0, description="How often a model is expected to be loaded.")


class ModelStoreSpec(Spec):
    """The strategy of the model store, and its settings; the base is the run's model before."""

    strategy: Literal["adaptive", "snapshot", "changed_layers", "delta", "provenance", "custom"] = Field(
        "adaptive",
        description="`provenance` stores no weights: a model is trained again when it is needed. `custom` is a function of yours "
        "that chooses one of the others for each model.",
    )
    factory: ImportPath | None = Field(
        None, description="Of `custom`: `factory(**config)` returns the function.", exclude_if=lambda path: path is None
    )
    config: dict[str, Any] = Field({}, exclude_if=lambda config: not config)
    root: str | None = Field(
        None,
        description="Folder (relative to MODYN_HOME) or fsspec URL, without user or password: fsspec finds keys in the "
        "environment or its own configuration. Default: `models`. What is elsewhere already stays there.",
    )
    operator: Literal["subtract", "xor"] = Field("subtract", description="What a difference is, for `delta` and `adaptive`.")
    max_depth: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Differences to apply at most until a model is there; 1: all are to the keyframe."
    )
    full_model_interval: PositiveInt | None = Field(
        10, description="Every so many models one is stored whole, for `delta` and `adaptive`; null: never because of that."
    )
    prices: PricesSpec = PricesSpec()
    max_recovery_seconds: PositiveFloat | None = Field(
        None, description="A strategy whose models would take longer to load is not chosen by `adaptive`."
    )

    retrain: bool = Field(
        False,
        description="`adaptive` and `custom` may choose `provenance`; it needs `training.deterministic`, and data that stay.",
    )

    @field_validator("root")
    @classmethod
    def _shows_no_secret(cls, root: str | None) -> str | None:
        if root is not None and "://" in root and ("@" in root or "?" in root):
            raise ValueError("must not have a user, a password or a query; give these to fsspec by its environment variables")
        return root

    @model_validator(mode="after")
    def _keeps_its_promise(self) -> Self:
        if self.max_recovery_seconds is not None and self.strategy != "adaptive":
            raise ValueError(f"max_recovery_seconds needs strategy adaptive: {self.strategy} takes as long as it takes")
        if self.retrain and self.strategy not in ("adaptive", "custom"):
            raise ValueError(f"retrain needs strategy adaptive or custom, which may choose; {self.strategy} is chosen")
        if (self.strategy == "custom") != (self.factory is not None):
            raise ValueError("strategy custom and factory belong together: give both, or neither")
        if self.config and self.factory is None:
            raise ValueError("config is that of factory, which is missing")
        return self


class Display(Spec):
    """Display of the pipeline in Dagster."""

    group: Name | None = Field(None, description="Asset group; default: the pipeline's name.")
    tags: dict[TagName, TagValue] = {}


#: Name of an alias of a registered model in MLflow.
AliasName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,255}$")]


class ModelRetention(Spec):
    """Rules for the models of each run that stay in the store; a model that no rule keeps is removed, its row and scores stay.

    Always kept: models that pipelines use (live, newest, champion, the start of an open run), and the bases of kept ones.
    """

    newest: PositiveInt | None = Field(None, description="The newest so many models of each run stay.")
    best: PositiveInt | None = Field(None, description="The so many best models of each run stay, by their mean `score`.")
    younger_than: Duration | None = Field(None, description="Models trained less than this long ago stay.")
    aliases: list[AliasName] = Field([], description="Models with one of these aliases in MLflow stay; MLflow must answer.")

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if self == ModelRetention.model_construct():
            raise ValueError("give at least one of newest, best, younger_than and aliases; without `models` all models stay")
        return self


class Retention(Spec):
    """Number of the newest triggers of each run that keep a kind of file; ``null`` keeps all."""

    training_sets: PositiveInt | None = None
    predictions: PositiveInt | None = None
    optimizers: PositiveInt | None = Field(None, exclude_if=lambda value: value is None)
    models: ModelRetention | None = Field(
        None, description="Models that stay in the store; null: all.", exclude_if=lambda value: value is None
    )


Stage = Literal["train", "measure", "evaluate"]

_UNITS: Final = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE: Final = re.compile(r"([1-9][0-9]*)(MB|GB|TB)")


def bytes_of(size: str) -> int:
    """Bytes of ``500MB 4GB 1TB``.

    >>> bytes_of("4GB")
    4000000000
    """
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError("must be a whole number and a unit: 500MB, 4GB or 1TB")
    return int(match[1]) * _UNITS[match[2]]


def _check_size(text: str) -> str:
    bytes_of(text)
    return text


Size = Annotated[str, AfterValidator(_check_size), Field(examples=["500MB", "4GB"])]


class StageResources(Spec):
    """Share of a machine that runs of one stage reserve before they begin."""

    cpus: PositiveInt | None = Field(None, description="Cores; default: `threads` of the pipeline, and at least as many.")
    gpus: NonNegativeInt = Field(0, description="Whole GPUs; the run sees no others.")
    memory: Size | None = Field(None, description="Memory that is kept free of other runs, such as 4GB; default: none.")


class ResourcesSpec(Spec):
    """Reservations by stage. A run over several stages reserves the largest number of each kind."""

    train: StageResources | None = None
    measure: StageResources | None = None
    evaluate: StageResources | None = None

    def of(self, stages: Collection[Stage], threads: int, ranks: int = 1, *, elsewhere: bool = False) -> Resources | None:
        """Return what a run over some stages reserves; None where none of them is named.

        Args:
            stages: of the run.
            threads: of the pipeline.
            ranks: of its trainings, which compute at the same time.
            elsewhere: True if each rank reserves cores and a GPU of a cluster by itself; the run then keeps those of one.

        >>> spec = ResourcesSpec(train=StageResources(gpus=2), evaluate=StageResources(cpus=3))
        >>> spec.of(["train", "evaluate"], 2, ranks=2)
        Resources(cpus=4, gpus=2, memory=0)
        >>> spec.of(["train", "evaluate"], 2, ranks=2, elsewhere=True)
        Resources(cpus=3, gpus=1, memory=0)
        """
        blocks = {stage: block for stage in stages if (block := getattr(self, stage)) is not None}
        if not blocks:
            return None
        others = ranks - 1 if elsewhere else 0
        cpus, gpus = [], []
        for stage, block in blocks.items():
            away = others if stage == "train" else 0
            cpus.append((block.cpus or threads * (ranks if stage == "train" else 1)) - away * threads)
            gpus.append(max(0, block.gpus - away))
        memory = max(bytes_of(block.memory) if block.memory else 0 for block in blocks.values())
        return Resources(max(cpus), max(gpus), memory)
