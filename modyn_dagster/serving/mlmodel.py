"""``MLmodel`` of a model: flavor, signature, parameters, and an input example that is made up."""

import io
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from modyn_dagster import __version__
from modyn_dagster.imports import require
from modyn_dagster.serving.inputs import InputColumn, Inputs, read_architecture
from modyn_dagster.serving.model_predictor import OUTPUTS
from modyn_dagster.spec.learning.parsing import ImageParserSpec, SoundParserSpec, SoundsSpec
from modyn_dagster.training.predictor_record import PredictorRecord
from modyn_dagster.training.trainers.registry import libraries_of

#: Module by which MLflow loads the model.
LOADER: Final = "modyn_dagster.serving.flavor"
#: Column of the bytes or texts of samples in DataFrames and requests.
CONTENT: Final = "content"
_EXAMPLE: Final = "input_example.json"
_REQUIREMENTS: Final = ("mlflow", "torch", "numpy", "safetensors")


def write_mlmodel(record: PredictorRecord, folder: Path, data: str) -> None:
    """Write ``MLmodel``, the requirements and the input example; ``data`` is the folder of the model's own files.

    Raises ``MissingPackage`` without MLflow.
    """
    require("mlflow", "the folder of an MLflow model")
    from mlflow.models import Model

    with warnings.catch_warnings():
        # MLflow warns of its own type hints.
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc

    model = Model(signature=_signature(record), metadata=_metadata(record))
    if (example := _example(record)) is not None:
        (folder / _EXAMPLE).write_text(json.dumps(example), encoding="utf-8")
        model.saved_input_example_info = {"artifact_path": _EXAMPLE, "type": "dataframe", "pandas_orient": "split"}
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in _requirements(record)), encoding="utf-8")
    python = ".".join(map(str, sys.version_info[:3]))
    (folder / "python_env.yaml").write_text(f"python: {python}\ndependencies:\n- -r requirements.txt\n", encoding="utf-8")
    mlflow.pyfunc.add_to_model(model, loader_module=LOADER, data=data, python_env="python_env.yaml")
    model.save(str(folder / "MLmodel"))


def _requirements(record: PredictorRecord) -> list[str]:
    # Builds of torch for CPU and CUDA have one version, with a suffix that package indexes do not have.
    common = [f"modyn-dagster=={__version__}", *(f"{name}=={version(name).partition('+')[0]}" for name in _REQUIREMENTS)]
    return common + [f"{name}=={number}" for name, number in libraries_of(record.architecture).items()]


def _metadata(record: PredictorRecord) -> dict[str, Any]:
    return {"model": record.model, "name": record.name, "kind": record.kind, "classes": list(record.classes)}


def _signature(record: PredictorRecord) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    inputs = Inputs(record)
    content = ColSpec(DataType.string if inputs.are_texts else DataType.binary, CONTENT)
    columns: list[ColSpec | TensorSpec] = [ColSpec(_type_of(column), column.name) for column in inputs.columns]
    if record.kind == "target":
        kind = DataType.long if record.are_flags else DataType.double
    else:
        kind = DataType.string if record.classes else DataType.long
    params = ParamSchema([ParamSpec("output", DataType.string, OUTPUTS[0])])
    outputs: list[ColSpec | TensorSpec] = [ColSpec(kind, name) for name in record.names] or [ColSpec(kind)]
    return ModelSignature(Schema(columns or [content]), Schema(outputs), params)


def _type_of(column: InputColumn) -> Any:
    from mlflow.types import DataType
    from mlflow.types.schema import Array

    match column.dtype:
        case None:
            kind = DataType.string
        case np.dtype(kind="b"):
            kind = DataType.boolean
        case np.dtype(kind="f", itemsize=size):
            kind = DataType.float if size <= 4 else DataType.double
        case np.dtype(kind=sign, itemsize=size):
            kind = DataType.integer if size < 4 or (sign == "i" and size == 4) else DataType.long
    return kind if column.width == 1 else Array(kind)


def _example(record: PredictorRecord) -> dict[str, Any] | None:
    """One made-up row, as pandas splits a DataFrame; None for bytes that only the project's parser knows."""
    import base64

    inputs = Inputs(record)
    if inputs.columns:
        zeros = [_zero(column) for column in inputs.columns]
        return {"columns": [column.name for column in inputs.columns], "data": [zeros]}
    if inputs.are_texts:
        return {"columns": [CONTENT], "data": [["text"]]}
    parser = read_architecture(record)[0].parser
    if isinstance(parser, SoundParserSpec):
        return {"columns": [CONTENT], "data": [[base64.b64encode(_silence(parser.sounds)).decode()]]}
    if not isinstance(parser, ImageParserSpec):
        return None
    height, width = parser.images.size
    return {"columns": [CONTENT], "data": [[base64.b64encode(_grey_image(height, width)).decode()]]}


def _zero(column: InputColumn) -> Any:
    if column.dtype is None:
        return "text"
    zero = column.dtype.type(0).item()
    return zero if column.width == 1 else [zero] * column.width


def _silence(sounds: SoundsSpec) -> bytes:
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(sounds.channels)
        sound.setsampwidth(2)
        sound.setframerate(sounds.rate)
        sound.writeframes(bytes(2 * sounds.channels))
    return file.getvalue()


def _grey_image(height: int, width: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (width, height), (128, 128, 128)).save(file, "JPEG")
    return file.getvalue()
