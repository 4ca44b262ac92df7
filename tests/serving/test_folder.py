"""Folders of MLflow models: every kind of input predicts what evaluation predicts, from files without pickles."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.models import Model
from safetensors.torch import load_file

from modyn_dagster.errors import ConfigError, CorruptFile, ModynError, WrongInput
from modyn_dagster.serving import load_folder, write_folder
from modyn_dagster.serving.model_folder import write_description
from tests.serving.kinds import KINDS, Kind, encoded, groups, kind, numbers, regression
from tests.serving.served import frame
from tests.training.table import Table
from tests.variants import represented


def written(made: Kind, folder: Path, class_names: tuple[str, ...] = ()) -> Path:
    write_folder(made.record(class_names), made.model.state_dict, folder)
    return folder


def inputs_of(made: Kind) -> pd.DataFrame:
    table = made.table
    if table.blobs is None:
        return frame(table.samples)
    texts = "text" in (made.record().architecture["parser"] or {})
    return pd.DataFrame({"content": [blob.decode() if texts else blob for blob in table.blobs]})


@represented("name", list(KINDS), "laws-models", "numbers", "encoded", "texts", "images", "trainer", "autoencoder", "tagger")
def test_pyfunc_and_our_predictor_give_the_bits_of_evaluation(name: str, tmp_path: Path) -> None:
    made = KINDS[name]()
    folder = written(made, tmp_path / "model")
    expected = made.evaluated()
    model = mlflow.pyfunc.load_model(str(folder))
    inputs = inputs_of(made)[[*model.metadata.get_input_schema().input_names()]]
    assert model.predict(inputs, params={"output": "outputs"}).tobytes() == expected.tobytes()
    plain = load_folder(folder)
    assert plain.predict(inputs, "outputs").tobytes() == expected.tobytes()
    if made.table.blobs is None:
        by_name = {column: made.table.columns[column] for column in inputs.columns}
        assert plain.predict(by_name, "outputs").tobytes() == expected.tobytes()
    else:
        assert plain.predict(made.table.blobs, "outputs").tobytes() == expected.tobytes()


def test_texts_and_numbers_that_are_missing_are_predicted_in_every_form(tmp_path: Path) -> None:
    made = encoded()
    model = load_folder(written(made, tmp_path / "model"))
    plain = {"size": [np.nan, 0.5], "city": ["", "lima"], "code": ["b", ""], "floor": [1, 2], "old": [True, False]}
    expected = model.predict(
        {name: np.array(values, dtype=object if name in ("city", "code") else None) for name, values in plain.items()}, "outputs"
    )
    frame = pd.DataFrame(plain)
    missing = frame.assign(city=np.array([None, "lima"], dtype=object), code=np.array(["b", np.nan], dtype=object))
    nullable = missing.assign(size=pd.array([pd.NA, 0.5], dtype="Float64"), city=pd.array([pd.NA, "lima"], dtype="string"))
    for given in (frame, missing, nullable, missing.astype({"city": "category"}), frame.to_numpy(dtype=object)):
        assert model.predict(given, "outputs").tobytes() == expected.tobytes()
    nothing = frame.assign(city=np.nan, code=np.array([None, None], dtype=object))
    assert np.isfinite(model.predict(nothing, "outputs")).all()
    by_mlflow = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert by_mlflow.predict(missing, params={"output": "outputs"}).tobytes() == expected.tobytes()


def test_values_that_are_no_texts_are_refused_by_column(tmp_path: Path) -> None:
    made = encoded()
    model = load_folder(written(made, tmp_path / "model"))
    frame = pd.DataFrame({"size": [0.5], "city": ["rome"], "code": ["a"], "floor": [1], "old": [True]})
    with pytest.raises(WrongInput, match="column 'city' must be texts, found int64"):
        model.predict(frame.assign(city=[3]))
    with pytest.raises(WrongInput, match=r"column 'code' must be texts, found other values: .*dict"):
        model.predict(frame.assign(code=np.array([{}], dtype=object)))
    with pytest.raises(WrongInput, match="column 'city' must be there"):
        model.predict(frame.drop(columns="city"))


@represented("name", list(KINDS), "laws-models", "numbers", "texts", "trainer", "tagger")
def test_a_folder_holds_no_pickle_and_its_example_is_predicted(name: str, tmp_path: Path) -> None:
    folder = written(KINDS[name](), tmp_path / "model")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    own = {"MLmodel", "requirements.txt", "python_env.yaml", "model/record.json", "model/weights.safetensors"}
    assert files - {"input_example.json"} == own
    load_file(folder / "model" / "weights.safetensors")
    described = Model.load(str(folder))
    assert set(described.flavors) == {"python_function"}
    assert described.flavors["python_function"]["loader_module"] == "modyn_dagster.serving.flavor"
    if name != "own parser":
        example = described.load_input_example(str(folder))
        assert len(mlflow.pyfunc.load_model(str(folder)).predict(example)) == 1


def test_an_array_of_floats_takes_the_short_way_to_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(24, 3))
    values[2, 1], values[3, 0], values[4, 2] = np.nan, np.inf, 1e300
    made = kind(Table(dict(zip("abc", values.T, strict=True)), labels=np.arange(24) % 2), model={"name": "mlp", "hidden": [8]})
    model = load_folder(written(made, tmp_path / "model"))
    for rows in (values, np.asfortranarray(values), values[::1]):
        before = rows.copy()
        assert model.predict(rows, "outputs").tobytes() == made.evaluated().tobytes()
        assert rows.tobytes() == before.tobytes(), "the caller's array stays"


def test_predicting_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    model = load_folder(written(numbers(), tmp_path / "model"))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for rows in (np.zeros((1, 6)), {"a": [1.0]}):
            try:
                model.predict(rows)
            except ModynError:
                assert isinstance(rows, dict)
            assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (2, False)
            assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_num_threads(threads)


def test_arrays_follow_the_order_of_the_columns(tmp_path: Path) -> None:
    made = numbers()
    columns = made.table.columns
    rows = np.column_stack([columns[name].astype(float) for name in ("a", "n", "b", "three")])
    assert load_folder(written(made, tmp_path / "model")).predict(rows, "outputs").tobytes() == made.evaluated().tobytes()


def test_classes_have_their_names_and_probabilities_a_column_each(tmp_path: Path) -> None:
    made = groups()
    folder = written(made, tmp_path / "model", ("no", "yes", "later"))
    logits = made.evaluated().astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    inputs = inputs_of(made)
    model = mlflow.pyfunc.load_model(str(folder))
    probabilities = model.predict(inputs, params={"output": "probabilities"})
    assert list(probabilities.columns) == ["no", "yes"]
    np.testing.assert_allclose(probabilities.to_numpy(), expected, rtol=1e-12)
    assert model.predict(inputs).tolist() == [("no", "yes")[number] for number in logits.argmax(axis=1)]
    assert model.metadata.metadata["classes"] == ["no", "yes"]
    numbered = load_folder(written(made, tmp_path / "numbered"))
    assert numbered.predict(inputs).tolist() == logits.argmax(axis=1).tolist()


def test_a_regression_predicts_values_and_has_no_probabilities(tmp_path: Path) -> None:
    made = regression()
    model = load_folder(written(made, tmp_path / "model"))
    assert model.predict(made.table.columns).tobytes() == made.evaluated()[:, 0].tobytes()
    with pytest.raises(ModynError, match="'output' must be one of prediction, outputs, found 'probabilities'"):
        model.predict(made.table.columns, "probabilities")


def test_no_samples_give_no_predictions(tmp_path: Path) -> None:
    model = load_folder(written(numbers(), tmp_path / "model"))
    assert model.predict(np.empty((0, 6)), "outputs").shape == (0, 2)
    assert model.predict(np.empty((0, 6))).shape == (0,)


GOOD: dict[str, Any] = {"a": [1.0, 2.0], "n": [1, 2], "b": [True, False], "three": [[1.0, 2.0, 3.0]] * 2}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": None}, "column 'n' must be there, found only a, b, three"),
        ({"a": ["x", "y"]}, "column 'a' must be numbers (float64), found <U1"),
        ({"a": [[1.0, 2.0]] * 2}, "column 'a' must be of shape [n], found [2, 2]"),
        ({"three": [1.0, 2.0]}, "column 'three' must be of shape [n, 3], found [2]"),
        ({"three": [[1.0], [1.0, 2.0]]}, "column 'three' must be rows of 3 numbers, found rows of several lengths"),
        ({"n": [1.5, 2.0]}, "column 'n' must be int64, as in the dataset, found float64 that it cannot hold"),
        ({"b": [1]}, "column 'b' must be 2 values, as 'a' has, found 1"),
    ],
    ids=str,
)
@pytest.mark.parametrize("of", [dict, pd.DataFrame])
def test_columns_that_do_not_fit_are_named(change: dict[str, Any], sentence: str, of: Any, tmp_path: Path) -> None:
    data = {name: value for name, value in (GOOD | change).items() if value is not None}
    if of is pd.DataFrame:
        if len({len(value) for value in data.values()}) > 1:
            # No such DataFrame exists.
            return
        data = {name: pd.Series(value) for name, value in data.items()}
    elif any(len({np.size(row) for row in value}) > 1 for value in data.values()):
        data = {name: np.array(value, dtype=object) if name == "three" else value for name, value in data.items()}
    model = load_folder(written(numbers(), tmp_path / "model"))
    with pytest.raises(ValueError) as caught:
        model.predict(of(data))
    assert str(caught.value).startswith("p, trigger 000001-000000: ")
    assert sentence.replace("<U1", "") in str(caught.value).replace("<U1", "").replace("object", "")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros((2, 5)), "the input must be of shape [n, 6] (a, n, b, three), found [2, 5]"),
        (np.zeros(6), "found [6]"),
        (7, "must be a DataFrame, a mapping of columns, or an array, found int"),
        (None, "found NoneType"),
    ],
    ids=str,
)
def test_data_of_another_form_is_refused(data: Any, sentence: str, tmp_path: Path) -> None:
    model = load_folder(written(numbers(), tmp_path / "model"))
    with pytest.raises(ValueError) as caught:
        model.predict(data)
    assert sentence in str(caught.value)


def test_bytes_are_asked_for_where_samples_are_bytes(tmp_path: Path) -> None:
    model = load_folder(written(KINDS["images"](), tmp_path / "model"))
    cases: list[tuple[Any, str]] = [(["x"], "bytes, found str at position 0"), (np.zeros((2, 2)), "bytes"), (3, "found int")]
    for data, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            model.predict(data)


@pytest.mark.parametrize("damage", ["record", "weights", "format", "field"])
def test_a_damaged_folder_is_one_sentence(damage: str, tmp_path: Path) -> None:
    data = written(numbers(), tmp_path / "model") / "model"
    record = json.loads((data / "record.json").read_text())
    match damage:
        case "record":
            (data / "record.json").write_text("{")
        case "weights":
            (data / "weights.safetensors").write_bytes(b"\x80\x04pickle")
        case "format":
            (data / "record.json").write_text(json.dumps(record | {"format": 2}))
        case "field":
            (data / "record.json").write_text(json.dumps(record | {"threads": "two"}))
    with pytest.raises((CorruptFile, ConfigError)) as caught:
        load_folder(tmp_path / "model")
    assert str(data) in str(caught.value)


def test_user_code_that_is_missing_is_named(tmp_path: Path) -> None:
    made = groups()
    data = written(made, tmp_path / "model") / "model"
    text = (data / "record.json").read_text()
    (data / "record.json").write_text(text.replace("tests.training.training_user_code:recommender", "elsewhere:recommender"))
    with pytest.raises(ConfigError, match=r"^p, trigger 000001-000000: model\.factory: .*module 'elsewhere' does not exist"):
        load_folder(tmp_path / "model")


def test_a_folder_is_not_overwritten_and_a_failed_one_leaves_nothing(tmp_path: Path) -> None:
    made = numbers()
    written(made, tmp_path / "model")
    with pytest.raises(ConfigError, match="exists already"):
        written(made, tmp_path / "model")
    other = KINDS["texts"]()
    tokenizer = {"tokenizer": {"path": "nowhere", "length": 4}}
    record = other.record()
    lost = replace(record, architecture={**record.architecture, "parser": tokenizer})
    with pytest.raises(ConfigError, match="there is no folder"):
        write_folder(lost, other.model.state_dict, tmp_path / "lost")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("part", "value", "field"),
    [
        ("model", {"factory": "torch.hub:load", "config": {"source": "local"}}, "model.factory"),
        ("model", {"name": "sklearn", "estimator": "pandas:DataFrame"}, "model.*estimator"),
        ("model", {"name": "trainer", "factory": "pandas:read_pickle"}, "model.*factory"),
        (
            "model",
            {
                "name": "sklearn",
                "estimator": "sklearn.pipeline:Pipeline",
                "parameters": {"steps": [["a", {"estimator": "pandas:read_pickle"}]]},
            },
            "model.*parameters.*steps.0.1.estimator",
        ),
        ("parser", {"tokenizer": {"factory": "pandas:read_pickle", "config": {}, "length": 4}}, "parser.*factory"),
    ],
)
def test_a_record_names_no_code_but_that_of_the_project(tmp_path: Path, part: str, value: object, field: str) -> None:
    # Whoever may change tags in MLflow, or a folder, writes the record.
    written(numbers(), tmp_path / "model")
    path = tmp_path / "model" / "model" / "record.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"architecture": record["architecture"] | {part: value}}))
    with pytest.raises(ConfigError, match=rf"{field}.*no code of this project"):
        load_folder(tmp_path / "model")


@pytest.mark.parametrize("path", [".", ".modyn", ".modyn/database", "data", "tokenizer/.."])
def test_no_folder_but_that_of_a_tokenizer_is_taken_along(tmp_path: Path, project: Path, path: str) -> None:
    for folder in (".modyn/database", "data", "tokenizer"):
        (project / folder).mkdir(parents=True)
    (project / ".modyn" / "database" / "tokenizer.json").write_text("{}")
    record = KINDS["texts"]().record()
    parser = {"tokenizer": {"path": path, "length": 4}}
    with pytest.raises(ConfigError, match=r"tokenizer\.path.*must be the folder of a tokenizer"):
        write_description(replace(record, architecture={**record.architecture, "parser": parser}), tmp_path / "model")
    assert not list((tmp_path / "model").rglob("*.json"))


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "cluster"), ("threads", 0), ("threads", True), ("dtypes", {"x": "bogus"}), ("classes", 3)]
)
def test_a_damaged_record_is_named_by_its_field(tmp_path: Path, field: str, value: object) -> None:
    written(numbers(), tmp_path / "model")
    path = tmp_path / "model" / "model" / "record.json"
    record = json.loads(path.read_text())
    if field == "dtypes":
        value = dict.fromkeys(record["dtypes"], "bogus")
    path.write_text(json.dumps(record | {field: value}))
    with pytest.raises(ConfigError, match=field):
        load_folder(tmp_path / "model")
