"""Trained models of every kind of input, with their samples and the record that a registered version would have."""

import io
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from PIL import Image

from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainedModel, build_predictor, train
from modyn_dagster.training.predictor_record import PredictorRecord
from tests.training.table import Table, spec_of

#: Dtypes of columns as datasets name them.
_NAMES: Final = {"f": "float64", "i": "int64", "b": "bool", "O": "string"}

_TEXT_MODEL: Final = {"name": "hashed_text", "buckets": 50, "embedding": 4, "hidden": [4]}


@dataclass(frozen=True)
class Kind:
    """A trained model and all its samples."""

    spec: TrainingSpec
    table: Table
    model: TrainedModel

    def record(self, class_names: tuple[str, ...] = ()) -> PredictorRecord:
        dtypes = {name: _NAMES[column.dtype.kind] for name, column in self.table.columns.items()}
        return PredictorRecord.of(
            self.spec,
            self.model.architecture,
            name="p, trigger 000001-000000",
            model="0123abcd",
            store=None,
            dtypes=dtypes,
            class_names=class_names,
            threads=1,
        )

    def evaluated(self) -> Any:
        """Raw outputs of all samples in one block, as evaluation computes them."""
        return build_predictor(self.model.architecture, self.model.state_dict, threads=1, source="p")(self.table.samples)


def kind(table: Table, *, task: str = "class", **fields: Any) -> Kind:
    # A trainer has no loop.
    loop = {"epochs": 1, "batch_size": 16} if fields.get("model", {}).get("name") != "sklearn" else {}
    spec = spec_of(**loop, **fields)
    trained = train(spec, table.data(), task=Task(task, exclude=frozenset({"label"})), seed=0, threads=1, source="p")  # type: ignore[arg-type]
    return Kind(spec, table, trained)


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def _labels(n: int = 24) -> Any:
    return np.arange(n) % 2


def numbers(**fields: Any) -> Kind:
    rng = _rng()
    plain = {"a": rng.normal(size=24), "n": rng.integers(-9, 9, 24), "b": rng.random(24) > 0.5}
    columns = plain | {"three": rng.normal(size=(24, 3))}
    return kind(Table(columns, labels=_labels()), **{"model": {"name": "mlp", "hidden": [8]}} | fields)


def groups() -> Kind:
    rng = _rng()
    columns = {"x": rng.normal(size=24), "y": rng.normal(size=24), "c": rng.integers(0, 8, 24)}
    features = {"numeric": {"columns": ["y", "x"]}, "categorical": {"columns": ["c"], "dtype": "int64"}}
    factory = {"factory": "tests.training.training_user_code:recommender"}
    return kind(Table(columns, labels=_labels()), features=features, model=factory)


def regression() -> Kind:
    rng = _rng()
    return kind(Table({"x": rng.normal(size=24)}, targets=rng.normal(size=24)), task="target")


def encoded() -> Kind:
    """Texts and numbers of which some are missing, encoded in every way."""
    rng = _rng()
    city, code = (np.array(values * 6, dtype=object) for values in (["rome", "oslo", "", "köln"], ["a", "b", "b", "c"]))
    size = np.where(rng.random(24) < 0.3, np.nan, rng.normal(size=24))
    columns = {"size": size, "city": city, "code": code, "floor": rng.integers(0, 3, 24), "old": rng.random(24) > 0.5}
    encode = {
        "city": {"kind": "one_hot"},
        "code": {"kind": "embedding", "dimension": 2},
        "floor": {"kind": "hash", "buckets": 4},
    }
    model = {"name": "mlp", "hidden": [4]}
    return kind(Table(columns, labels=_labels()), encode=encode, impute={"*": {"indicator": True}}, model=model)


def text_columns() -> Kind:
    title, body = np.array(["good", "bad", None] * 8, dtype=object), np.array(["a b", "c", ""] * 8, dtype=object)
    parser = {"text": {"columns": ["title", "body"], "buckets": 50, "length": 4}}
    return kind(Table({"title": title, "body": body}, labels=_labels()), parser=parser, model=_TEXT_MODEL)


def texts() -> Kind:
    blobs = [f"text {n} größe".encode() for n in range(24)]
    return kind(Table({}, labels=_labels(), blobs=blobs), parser={"text": {"buckets": 50, "length": 4}}, model=_TEXT_MODEL)


def images() -> Kind:
    rng = _rng()
    blobs = []
    for _ in range(24):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "PNG")
        blobs.append(file.getvalue())
    parser = {"images": {"size": [8, 8], "dtype": "float32"}}
    return kind(Table({}, labels=_labels(), blobs=blobs), parser=parser, model={"name": "mlp", "hidden": [4]})


def sounds() -> Kind:
    rng = _rng()
    blobs = []
    for _ in range(24):
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(rng.bytes(16))
        blobs.append(file.getvalue())
    parser = {"sounds": {"rate": 8000, "samples": 8}}
    return kind(Table({}, labels=_labels(), blobs=blobs), parser=parser, model={"name": "mlp", "hidden": [4]})


def own_parser() -> Kind:
    blobs = [f"{x:.3f},{y:.3f}".encode() for x, y in _rng().normal(size=(24, 2))]
    return kind(Table({}, labels=_labels(), blobs=blobs), parser="tests.training.parsing_user_code:two_numbers")


def transformed() -> Kind:
    return numbers(transforms=[{"function": "tests.training.transforming_user_code:times", "when": "always"}])


def trainer() -> Kind:
    return numbers(
        model={"name": "sklearn", "estimator": "sklearn.ensemble:RandomForestClassifier", "parameters": {"n_estimators": 3}}
    )


def _without_label(**fields: Any) -> Kind:
    rng = _rng()
    table = Table({"x": rng.normal(size=24), "y": rng.normal(size=24)})
    return kind(table, model={"name": "mlp", "hidden": [4]}, **fields)


def autoencoder() -> Kind:
    return _without_label(task="reconstruction", loss={"name": "reconstruction"})


def embedding() -> Kind:
    views = [{"function": "tests.training.unlabelled_user_code:jittered", "when": "train"}]
    return _without_label(task="contrastive", loss={"name": "nt_xent", "dimension": 3}, transforms=views)


def language_model() -> Kind:
    blobs = [" ".join(str(1 + (n + i) % 8) for i in range(2 + n % 3)).encode() for n in range(24)]
    code = "tests.training.unlabelled_user_code"
    parser = {"tokenizer": {"factory": f"{code}:Words", "length": 5}}
    loss = {"name": "causal_tokens", "vocabulary": 10}
    return kind(Table({}, blobs=blobs), task="tokens", parser=parser, loss=loss, model={"factory": f"{code}:Transformer"})


def tagger() -> Kind:
    words = [" ".join(str(1 + (n + i) % 8) for i in range(2 + n % 3)) for n in range(24)]
    tags = [" ".join("OBI"[int(word) % 3].replace("B", "B-X").replace("I", "I-X") for word in text.split()) for text in words]
    code = "tests.training.unlabelled_user_code"
    parser = {"tokenizer": {"factory": f"{code}:Words", "columns": ["words"], "tags": "tags", "length": 5}}
    loss = {"name": "token_tags", "tags": ["O", "B-X", "I-X"]}
    model = {"factory": f"{code}:Tagger", "config": {"vocabulary": 10}}
    table = Table({"words": np.array(words, dtype=object), "tags": np.array(tags, dtype=object)})
    return kind(table, task="tags", parser=parser, loss=loss, model=model)


KINDS: Final[Mapping[str, Callable[[], Kind]]] = {
    "numbers": numbers,
    "double": lambda: numbers(precision="64-true"),
    "groups": groups,
    "encoded": encoded,
    "regression": regression,
    "text columns": text_columns,
    "texts": texts,
    "images": images,
    "sounds": sounds,
    "own parser": own_parser,
    "transformed": transformed,
    "trainer": trainer,
    "autoencoder": autoencoder,
    "embedding": embedding,
    "language model": language_model,
    "tagger": tagger,
}
