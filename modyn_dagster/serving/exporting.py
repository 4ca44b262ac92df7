"""Programs of a model for other runtimes: ``torch.export``, TorchScript and ONNX, with a description of their inputs inside.

A program takes the inputs of the network by position, for any number of samples, and returns raw outputs. Standardisation is
part of it; parsers and transforms of the project are Python, and stay outside, as do encodings of columns, which are described.
"""

import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.model_store.export import DESCRIPTION, torchscript_without_warnings
from modyn_dagster.model_store.provenance.recipe import allowed_callable
from modyn_dagster.serving.inputs import read_architecture
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.learning.parsing import ImageParserSpec, SoundParserSpec, TextParserSpec, TokenizerParserSpec
from modyn_dagster.storage import atomic_file
from modyn_dagster.training.columns.encoders import Encoder
from modyn_dagster.training.columns.input import Input
from modyn_dagster.training.models.network import Network
from modyn_dagster.training.module import build_module, empty_network, refuse_transforms, seen_layout
from modyn_dagster.training.predictor_record import PredictorRecord

OUTPUT: Final = "outputs"
#: Endings of programs.
PROGRAMS: Final = (".pt", ".pt2", ".onnx")
#: Samples of the example that a program is traced with: one would be taken for a constant.
_EXAMPLE: Final = 2


class Program(nn.Module):
    """Network that takes its inputs by position, in the order of their names."""

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self._names = network, tuple(names)

    def forward(self, *inputs: Tensor) -> Any:
        """Raw outputs ``[n, outputs]``."""
        return self.network(dict(zip(self._names, inputs, strict=True)))


def describe(record: PredictorRecord) -> dict[str, Any]:
    """Inputs of a program by position, its output, and the work that stays with its caller; JSON-serialisable."""
    spec, layout = read_architecture(record)
    inputs = [
        {
            "name": each.name,
            "dtype": _dtype_of(record, each),
            # Rows of numbers reach the network flat, whatever the shape of a parser's array.
            "shape": ["n", each.n_features] if each.tabular else ["n", *each.shape],
            "columns": [name for name, _, start, stop in each.parts() for _ in range(start, stop)],
        }
        for each in seen_layout(record.architecture, layout).inputs
    ]
    parser = None if spec.parser is None else spec.model_dump(mode="json", include={"parser"})["parser"]
    meaning = "logits" if record.kind == "class" or record.are_flags else "values"
    output: dict[str, Any] = {
        "name": OUTPUT,
        "dtype": "float64" if spec.precision == "64-true" else "float32",
        "meaning": meaning,
    }
    if record.quantiles:
        output["quantiles"] = list(record.quantiles)
    if record.several:
        output["columns"] = list(record.several)
    about = {"model": record.model, "name": record.name}
    return about | {"inputs": inputs, "output": output, "classes": list(record.classes), "parser": parser}


def export_program(
    record: PredictorRecord, state_dict: Mapping[str, Tensor], path: Path, *, allow: Sequence[str] = ()
) -> dict[str, Any]:
    """Write ``.pt2`` (``torch.export``), ``.pt`` (TorchScript) or ``.onnx``; returns the description that is in the file.

    Args:
        record: everything beside the weights.
        state_dict: weights.
        path: file to write; it appears whole or not at all.
        allow: modules whose functions may run to build a model of the project's own code.

    Raises:
        ConfigError: the ending is unknown, transforms belong to predictions, or torch cannot trace the model.
        NotAllowed: the model is code of the project, which ``allow`` does not name.
        MissingExtra: ``.onnx`` without the libraries of the extra ``onnx``.
    """
    if path.suffix not in PROGRAMS:
        raise ConfigError("export", "path", str(path), f"must end in one of {', '.join(PROGRAMS)}")
    if path.suffix == ".onnx" and (missing := next((name for name in ("onnx", "onnxscript") if find_spec(name) is None), None)):
        raise MissingExtra("export", "path", str(path), package=missing, extra="onnx")
    description = describe(record)
    network = _network(record, allow)
    network.load_state_dict(state_dict)
    if network.encode is not None:
        description["encodings"] = [_described(each) for each in network.encode.encoders().by_column.values()]
    program = Program(network.eval(), [each["name"] for each in description["inputs"]]).eval()
    example = tuple(
        torch.zeros([_EXAMPLE, *each["shape"][1:]], dtype=getattr(torch, each["dtype"])) for each in description["inputs"]
    )
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            content = _WRITERS[path.suffix](program, example, description)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise ConfigError("export", "model", path.suffix, f"torch cannot trace it: {type(error).__name__}: {first}") from error
    with atomic_file(path) as file:
        file.write(content)
    return description


def _described(encoder: Encoder) -> dict[str, Any]:
    """Describe an encoder, whose work stays with the caller of a program."""
    description = encoder.encoding.to_json()
    if encoder.encoding.kind == "impute":
        return description | {"fill": encoder.fill}
    if not encoder.encoding.has_vocabulary:
        return description
    values = [value.decode("utf-8", "replace") for value in encoder.vocabulary.values.to_pylist()]
    return description | {"values": values, "knows_unknown": encoder.vocabulary.knows_unknown}


def _network(record: PredictorRecord, allow: Sequence[str]) -> Network:
    spec, _ = read_architecture(record)
    if not isinstance(spec.model, CustomSpec) or not allow:
        return build_module(record.architecture)
    allowed_callable(spec.model.factory, allow, source="export", field="model.factory", purpose="built")
    refuse_transforms(spec)
    return empty_network(record.architecture, threads=1, source="export")


def _dtype_of(record: PredictorRecord, entry: Input) -> str:
    """Dtype of an input before the network."""
    if entry.tabular:
        return "float64"
    if entry.dtype is not None:
        return entry.dtype
    match read_architecture(record)[0].parser:
        case ImageParserSpec(images=images):
            return images.dtype
        case SoundParserSpec():
            return "float32"
        case TextParserSpec() | TokenizerParserSpec():
            return "int64"
    rule = "returns arrays whose dtype is not recorded: give example inputs (--inputs FILE)"
    raise ConfigError("export", "training.parser", record.architecture.get("parser"), rule)


def _exported(program: Program, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    samples = torch.export.Dim("n")
    return torch.export.export(program, example, dynamic_shapes=(tuple({0: samples} for _ in example),))


def _as_pt2(program: Program, example: tuple[Tensor, ...], description: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.export.save(_exported(program, example), file, extra_files={DESCRIPTION: json.dumps(description)})
    return file.getvalue()


def _as_torchscript(program: Program, example: tuple[Tensor, ...], description: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    with torchscript_without_warnings():
        traced = torch.jit.trace(program, example)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, file, _extra_files={DESCRIPTION: json.dumps(description)})
    return file.getvalue()


def _as_onnx(program: Program, example: tuple[Tensor, ...], description: Mapping[str, Any]) -> bytes:
    names = [each["name"] for each in description["inputs"]]
    exported = torch.onnx.export(
        _exported(program, example), example, dynamo=True, input_names=names, output_names=[OUTPUT], verbose=False
    )
    assert exported is not None  # noqa: S101 - without a file it is returned
    proto = exported.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = DESCRIPTION, json.dumps(description)
    return bytes(proto.SerializeToString())


_WRITERS: Final[Mapping[str, Callable[[Program, tuple[Tensor, ...], Mapping[str, Any]], bytes]]] = {
    ".pt": _as_torchscript,
    ".pt2": _as_pt2,
    ".onnx": _as_onnx,
}
