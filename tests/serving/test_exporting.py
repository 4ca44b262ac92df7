"""Exported programs: probabilities within 1e-5 of our predictor's for any number of samples, and a description inside."""

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from modyn_dagster.errors import ConfigError, MissingExtra, ModynError
from modyn_dagster.model_store.export import DESCRIPTION
from modyn_dagster.serving.exporting import export_program
from modyn_dagster.serving.model_predictor import softmax
from modyn_dagster.training.columns.encoders import Encoders
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.module import spec_of_architecture
from modyn_dagster.training.parsing.parser import Parsing
from tests.serving.kinds import KINDS, Kind, encoded, groups, numbers

OWN = ("tests.training.training_user_code",)
QUICK = [
    ("numbers", ".pt"),
    ("groups", ".pt"),
    ("numbers", ".pt2"),
    ("text columns", ".pt2"),
    ("encoded", ".pt2"),
    ("groups", ".onnx"),
]
EXPORTED = ["numbers", "double", "groups", "encoded", "regression", "text columns", "texts", "images", "own parser"]

Arrays = Sequence[npt.NDArray[Any]]


def arrays_of(made: Kind) -> Arrays:
    """Inputs of the network, as a caller prepares them by the description."""
    spec, layout = spec_of_architecture(made.record().architecture)
    state = {name.removeprefix("encode."): tensor.numpy() for name, tensor in made.model.state_dict.items()}
    encoders = Encoders.of_state(layout.encodings, state)
    return list(Features(layout, Parsing(spec.parser, "p"), encoders)(made.table.samples).values())


def run_pt2(path: Path) -> tuple[Callable[[Arrays], Any], Any]:
    extra = {DESCRIPTION: ""}
    module = torch.export.load(path, extra_files=extra).module()
    return lambda arrays: module(*map(torch.from_numpy, arrays)).numpy(force=True), json.loads(extra[DESCRIPTION])


def run_torchscript(path: Path) -> tuple[Callable[[Arrays], Any], Any]:
    extra = {DESCRIPTION: ""}
    module = torch.jit.load(path, _extra_files=extra)  # type: ignore[no-untyped-call]
    return lambda arrays: module(*map(torch.from_numpy, arrays)).numpy(force=True), json.loads(extra[DESCRIPTION])


def run_onnx(path: Path) -> tuple[Callable[[Arrays], Any], Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    properties = session.get_modelmeta().custom_metadata_map
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0], json.loads(properties[DESCRIPTION])


RUNNERS = {".pt": run_torchscript, ".pt2": run_pt2, ".onnx": run_onnx}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        pytest.param(name, suffix, marks=[] if (name, suffix) in QUICK else pytest.mark.soak("laws-models"))
        for name in EXPORTED
        for suffix in RUNNERS
    ],
)
def test_a_program_stays_within_1e_5_in_probability(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
    made, path = KINDS[name](), tmp_path / f"m{suffix}"
    written = export_program(made.record(("no", "yes")), made.model.state_dict, path, allow=OWN)
    run, description = RUNNERS[suffix](path)
    assert description == written
    assert description["output"]["name"] == "outputs"
    arrays, expected = arrays_of(made), made.evaluated()
    assert [each["dtype"] for each in description["inputs"]] == [str(array.dtype) for array in arrays]
    for n in (len(expected), 1, 7):
        outputs = np.asarray(run([array[:n] for array in arrays]))
        if name == "regression":
            np.testing.assert_allclose(outputs, expected[:n], atol=1e-5)
        else:
            np.testing.assert_allclose(softmax(outputs), softmax(expected[:n]), atol=1e-5)


def test_columns_of_an_input_are_described_in_order(tmp_path: Path) -> None:
    made = groups()
    description = export_program(made.record(), made.model.state_dict, tmp_path / "m.pt2", allow=OWN)
    assert [(each["name"], each["columns"]) for each in description["inputs"]] == [
        ("numeric", ["y", "x"]),
        ("categorical", ["c"]),
    ]
    assert zipfile.is_zipfile(tmp_path / "m.pt2")


def test_encodings_that_stay_with_the_caller_are_described_with_their_values(tmp_path: Path) -> None:
    made = encoded()
    description = export_program(made.record(), made.model.state_dict, tmp_path / "m.pt2")
    [row] = description["inputs"]
    assert row["columns"] == ["size"] * 2 + ["city"] * 5 + ["code"] + ["floor"] * 4 + ["old"]
    by_column = {each["column"]: each for each in description["encodings"]}
    assert by_column["city"]["values"] == ["", "köln", "oslo", "rome"]
    assert by_column["code"]["kind"] == "embedding"
    assert by_column["code"]["values"] == ["a", "b", "c"]
    assert by_column["size"]["fill"] == pytest.approx(float(np.nanmean(made.table.columns["size"])))
    assert by_column["floor"] == {"column": "floor", "kind": "hash", "buckets": 4}


def test_programs_without_the_library_for_them_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modyn_dagster.serving.exporting.find_spec", lambda name: None)
    made = numbers()
    with pytest.raises(MissingExtra, match=r"needs onnx, .* `pip install 'modyn-dagster\[onnx\]'`"):
        export_program(made.record(), made.model.state_dict, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "path", "sentence"),
    [
        ("groups", "m.pt2", "is code of your own"),
        ("transformed", "m.pt", "are code of your own: apply them yourself"),
        ("trainer", "m.pt2", "is no network: export .safetensors"),
        ("numbers", "m.bin", "must end in one of .pt, .pt2, .onnx"),
    ],
)
def test_models_that_make_no_program_are_refused_by_name(name: str, path: str, sentence: str, tmp_path: Path) -> None:
    made = KINDS[name]()
    with pytest.raises(ConfigError, match=sentence):
        export_program(made.record(), made.model.state_dict, tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_code_that_is_not_allowed_builds_nothing(tmp_path: Path) -> None:
    made = groups()
    with pytest.raises(ModynError, match="training_user_code"):
        export_program(made.record(), made.model.state_dict, tmp_path / "m.pt2", allow=["elsewhere"])
    assert not list(tmp_path.iterdir())
