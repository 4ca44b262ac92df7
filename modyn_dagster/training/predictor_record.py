"""Record of a trained model for serving: all that its predictions depend on beside the weights, as JSON. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self, get_args

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.transforms import GroupedLabels
from modyn_dagster.spec.training import TaskKind, TrainingSpec

#: Version of the format. Readers refuse others.
FORMAT: Final = 1
#: Dtype of a column that the record does not name.
DEFAULT_DTYPE: Final = "float64"


@dataclass(frozen=True, slots=True)
class PredictorRecord:
    """Everything but the weights that decides the predictions of a model.

    Attributes:
        name: pipeline and trigger of the model, for messages.
        model: id in the model store.
        store: folder or URL of that store; None where it is not known, or holds a password.
        architecture: as ``train`` recorded it, without label transforms: predicting needs no labels.
        dtypes: dtype in the dataset of columns that the model reads: ``int64``, ``float64``, ``bool``, ``string``,
            ``timestamp``, or a NumPy dtype of fixed rows.
        classes: names of the outputs; empty for a regression, and where classes are numbers.
        kind: kind of the task.
        threads: threads of the predictions that were evaluated: they are part of the bits.
        device: device of the training spec.
    """

    name: str
    model: str
    store: str | None
    architecture: Mapping[str, Any]
    dtypes: Mapping[str, str]
    classes: tuple[str, ...]
    kind: TaskKind
    threads: int
    device: str

    @classmethod
    def of(
        cls,
        training: TrainingSpec,
        architecture: Mapping[str, Any],
        *,
        name: str,
        model: str,
        store: str | None,
        dtypes: Mapping[str, str],
        class_names: Sequence[str],
        threads: int,
    ) -> Self:
        """Record of a model that was trained by a spec.

        Args:
            training: spec of the training.
            architecture: as ``train`` recorded it.
            name: pipeline and trigger of the model.
            model: its id in the model store.
            store: folder or URL of that store, if it may be told.
            dtypes: dtype of each column of the dataset.
            class_names: names of the dataset's classes in the order of their index.
            threads: threads of predictions.
        """
        parts = {key: part for key, part in architecture.items() if key not in ("label", "label_transform")}
        used = set(_texts(parts))
        kind: TaskKind = parts["task"]
        names = output_names(training, int(parts["n_outputs"]), class_names) if kind == "class" else ()
        read = {column: dtype for column, dtype in dtypes.items() if column in used}
        return cls(name, model, store, parts, read, names, kind, threads, training.device)

    def to_json(self) -> dict[str, Any]:
        """Content of the record's file."""
        return {"format": FORMAT} | asdict(self)

    @classmethod
    def from_json(cls, content: Any, *, source: str) -> Self:
        """Read a record; ``ConfigError`` names the field that is missing or impossible."""
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            found = content.get("format") if isinstance(content, Mapping) else type(content).__name__
            raise ConfigError(source, "format", found, f"must be {FORMAT}, the format that this version of modyn-dagster reads")
        types: Mapping[str, tuple[type, ...]] = {
            "name": (str,),
            "model": (str,),
            "store": (str, type(None)),
            "architecture": (Mapping,),
            "dtypes": (Mapping,),
            "classes": (list, tuple),
            "kind": (str,),
            "threads": (int,),
            "device": (str,),
        }
        for field, allowed in types.items():
            if not isinstance(content.get(field), allowed):
                raise ConfigError(source, field, content.get(field), "is no part of a predictor's record")
        if content["kind"] not in get_args(TaskKind):
            raise ConfigError(source, "kind", content["kind"], f"must be one of {', '.join(get_args(TaskKind))}")
        if isinstance(content["threads"], bool) or content["threads"] < 1:
            raise ConfigError(source, "threads", content["threads"], "must be at least 1")
        return cls(**{field: content[field] for field in types} | {"classes": tuple(map(str, content["classes"]))})

    @property
    def n_outputs(self) -> int:
        """Outputs per sample: classes, quantiles, or 1."""
        return int(self.architecture["n_outputs"])

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Quantiles that the outputs stand for; empty for other models."""
        return tuple(self.architecture.get("learns", {}).get("quantiles", ()))

    @property
    def several(self) -> tuple[str, ...]:
        """Names of the columns of the truth, where it is several: one output each."""
        return tuple(self.architecture.get("learns", {}).get("columns", ()))

    @property
    def are_flags(self) -> bool:
        """True for a model of labels that a sample has or has not, whose outputs are their logits."""
        return bool(self.architecture.get("learns", {}).get("kind") == "multi_label")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values of a prediction, where it is several: columns of the truth, or quantiles, such as ``q0.1``."""
        return self.several or tuple(f"q{level:g}" for level in self.quantiles)


def _texts(content: object) -> Iterator[str]:
    """All texts in a tree; the names of columns are among those of an architecture."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for part in content.values():
            yield from _texts(part)
    elif isinstance(content, Sequence):
        for part in content:
            yield from _texts(part)


def output_names(training: TrainingSpec, n_outputs: int, class_names: Sequence[str]) -> tuple[str, ...]:
    """Names of a classifier's outputs; empty where classes are numbers.

    A model has as many classes as there were at its trigger; later ones are left out.
    """
    if isinstance(training.label_transform, GroupedLabels):
        return tuple(", ".join(map(str, group)) for group in training.label_transform.groups)
    if training.label_transform is not None or len(class_names) < n_outputs:
        return ()
    return tuple(class_names[:n_outputs])
