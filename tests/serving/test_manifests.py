"""Manifests for other servers: what they name is what exports contain and what commands take."""

import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml
from mlflow.models.cli import commands

from modyn_dagster.serving import load_folder, write_folder
from modyn_dagster.serving.exporting import export_program
from tests.serving.kinds import Kind, kind
from tests.training.table import Table

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples" / "serving"
#: Types of Triton by those of NumPy: https://docs.nvidia.com/deeplearning/triton-inference-server, model configuration.
TRITON: Final = {"float64": "TYPE_FP64", "float32": "TYPE_FP32", "int64": "TYPE_INT64"}
_TOKEN: Final = re.compile(r'\s+|#[^\n]*|("[^"\\\n]*"|[A-Za-z_]\w*|-?\d+|[:\[\]{},])')


def flights() -> Kind:
    rng = np.random.default_rng(1)
    columns = {"delay": rng.normal(size=24), "distance": rng.normal(size=24)}
    return kind(Table(columns, labels=np.arange(24) % 2), model={"name": "mlp", "hidden": [8]})


def text_format(text: str) -> dict[str, Any]:
    """Fields of a message in protobuf's text format, as far as the configuration uses it; ``ValueError`` for anything else."""
    tokens: list[str] = []
    start = 0
    while start < len(text):
        match = _TOKEN.match(text, start)
        if match is None:
            raise ValueError(f"no token at {text[start : start + 20]!r}")
        tokens, start = [*tokens, *filter(None, match.groups())], match.end()
    message, rest = _message([*tokens, "}"])
    if rest:
        raise ValueError(f"more than one message: {rest}")
    return message


def _message(tokens: list[str]) -> tuple[dict[str, Any], list[str]]:
    fields: dict[str, Any] = {}
    while tokens[0] != "}":
        name, tokens = tokens[0], tokens[1:]
        if name in fields or not name.isidentifier():
            raise ValueError(f"no new field: {name}")
        if tokens[0] == ":":
            tokens = tokens[1:]
        elif tokens[0] not in "{[":
            raise ValueError(f"field {name} has no value")
        fields[name], tokens = _value(tokens)
    return fields, tokens[1:]


def _value(tokens: list[str]) -> tuple[Any, list[str]]:
    first, tokens = tokens[0], tokens[1:]
    if first == "{":
        return _message(tokens)
    if first == "[":
        values = []
        while True:
            value, tokens = _value(tokens)
            values.append(value)
            separator, tokens = tokens[0], tokens[1:]
            if separator == "]":
                return values, tokens
            if separator != ",":
                raise ValueError(f"a list goes on with {separator}")
    if first.startswith('"'):
        return first[1:-1], tokens
    if first.isidentifier():
        return first, tokens
    return int(first), tokens


@pytest.mark.parametrize("text", ['name "x"', "a: 1 a: 2", "a: [1 2]", "a: 1 }", 'a: "x'])
def test_the_reader_of_the_text_format_is_strict(text: str) -> None:
    with pytest.raises(ValueError):
        text_format(text)


@pytest.mark.soak("laws-models")
def test_tritons_configuration_is_that_of_the_exported_program(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = EXAMPLES / "triton" / "flights"
    config, made = text_format((folder / "config.pbtxt").read_text()), flights()
    description = export_program(made.record(("late", "punctual")), made.model.state_dict, tmp_path / "model.onnx")

    def tensor(part: dict[str, Any], shape: list[Any]) -> dict[str, Any]:
        return {"name": part["name"], "data_type": TRITON[part["dtype"]], "dims": shape[1:]}

    assert (config["name"], config["platform"]) == (folder.name, "onnxruntime_onnx")
    assert config["input"] == [tensor(each, each["shape"]) for each in description["inputs"]]
    assert config["output"] == [tensor(description["output"], ["n", len(description["classes"])])]
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for part, nodes in (("input", session.get_inputs()), ("output", session.get_outputs())):
        # Triton adds the number of samples in front where `max_batch_size` is above 0, so the program must leave it open.
        assert [(each["name"], each["dims"]) for each in config[part]] == [(node.name, node.shape[1:]) for node in nodes]
        assert all(isinstance(node.shape[0], str) for node in nodes)
    rows = {"features": np.zeros((config["max_batch_size"], 2))}
    [outputs] = session.run(None, rows)
    assert outputs.shape == (config["max_batch_size"], 2)


def test_kserves_manifest_names_what_the_servers_take() -> None:
    served, onnx = yaml.safe_load_all((EXAMPLES / "kserve.yaml").read_text())
    for each in (served, onnx):
        assert set(each) == {"apiVersion", "kind", "metadata", "spec"}
        assert (each["apiVersion"], each["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", each["metadata"]["name"]), "a DNS label"
        assert set(each["spec"]) == {"predictor"}
    [container] = served["spec"]["predictor"]["containers"]
    # KServe routes to the container of this name.
    assert container["name"] == "kserve-container"
    assert container["command"] == ["mlflow", "models", "serve"]
    serve = commands.commands["serve"]
    known = {name for parameter in serve.params for name in parameter.opts}
    options = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    assert set(options) <= known
    assert all(isinstance(argument, str) for argument in container["args"]), "Kubernetes takes texts alone"
    [port] = container["ports"]
    assert options["--port"] == str(port["containerPort"]) == str(container["readinessProbe"]["httpGet"]["port"])
    assert options["-m"] == f"models:/{served['metadata']['name']}@champion"
    assert [each["name"] for each in container["env"]] == ["MLFLOW_TRACKING_URI", "MODYN_MODELS"]
    model = onnx["spec"]["predictor"]["model"]
    assert (model["modelFormat"], model["runtime"]) == ({"name": "onnx"}, "kserve-tritonserver")
    assert set(model) == {"modelFormat", "runtime", "protocolVersion", "storageUri", "resources"}


def test_mlservers_settings_name_the_exported_folder_of_the_docs(tmp_path: Path) -> None:
    folder = EXAMPLES / "mlserver"
    model = json.loads((folder / "model-settings.json").read_text())
    assert model["implementation"] == "mlserver_mlflow.MLflowRuntime"
    made = flights()
    write_folder(made.record(), made.model.state_dict, tmp_path / model["parameters"]["uri"])
    assert load_folder(tmp_path / model["name"]).predict({"delay": [3.5], "distance": [900.0]}).shape == (1,)
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["host"] == "127.0.0.1"
    assert len({settings[name] for name in ("http_port", "grpc_port", "metrics_port")}) == 3
