from contextlib import closing

import numpy as np
import psutil
import pytest
import torch

from modyn_dagster.errors import ConfigError, ImportPathError, WrongShape
from modyn_dagster.training import Predictor, Task, TrainedModel, build_predictor, train
from tests.training.table import MakeTable, Table, spec_of


def trained(table: Table, **fields: object) -> TrainedModel:
    spec = spec_of(**{"model": {"name": "mlp", "hidden": [16], "dropout": 0.5}} | fields)
    task = Task("class", exclude=frozenset({"label"}))
    return train(spec, table.data(), task=task, seed=0, threads=1, source="p")


@pytest.fixture
def model(separable: Table) -> TrainedModel:
    return trained(separable)


def predictor_of(model: TrainedModel) -> Predictor:
    return build_predictor(model.architecture, model.state_dict, threads=1, source="pipeline p")


def test_outputs_are_raw_float32_in_evaluation_mode(separable: Table, model: TrainedModel) -> None:
    predict = predictor_of(model)
    outputs = predict(separable.samples)
    assert outputs.shape == (300, 2)
    assert outputs.dtype == np.float32
    columns = np.column_stack([separable.columns["left"], separable.columns["right"]])
    scaled = ((columns - columns.mean(0)) / columns.std(0)).astype(np.float32)
    state = {name: tensor.numpy() for name, tensor in model.state_dict.items()}
    hidden = np.maximum(scaled @ state["body.0.weight"].T + state["body.0.bias"], 0)
    np.testing.assert_allclose(outputs, hidden @ state["body.3.weight"].T + state["body.3.bias"], atol=1e-4)


def test_a_block_gives_the_same_bits_every_time_and_from_every_predictor(separable: Table, model: TrainedModel) -> None:
    block = separable.read(separable.keys[37:137])
    first = predictor_of(model)
    second = predictor_of(model)
    second(separable.samples)
    torch.manual_seed(8)
    assert first(block).tobytes() == second(block).tobytes() == first(block).tobytes()


def test_no_samples_give_no_outputs(separable: Table, model: TrainedModel) -> None:
    assert predictor_of(model)(separable.read(separable.keys[:0])).shape == (0, 2)


def test_building_and_predicting_leave_the_process_as_it_was(separable: Table, model: TrainedModel, two_threads: None) -> None:
    state = torch.get_rng_state()
    predictor_of(model)(separable.samples)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == 2


def test_missing_values_are_predicted_as_the_mean(table: MakeTable, model: TrainedModel) -> None:
    holes = table({"left": np.array([np.nan, 5.0]), "right": np.array([-100.0, np.nan])})
    mean = model.state_dict["standardize.mean"].numpy()
    filled = table({"left": np.array([mean[0], 5.0]), "right": np.array([-100.0, mean[1]])})
    predict = predictor_of(model)
    assert predict(holes.samples).tobytes() == predict(filled.samples).tobytes()


def test_columns_that_are_new_since_training_change_nothing(table: MakeTable, separable: Table, model: TrainedModel) -> None:
    wider = table({"new": np.ones(300), **separable.columns})
    predict = predictor_of(model)
    assert predict(wider.samples).tobytes() == predict(separable.samples).tobytes()


def test_a_column_that_is_gone_is_named(table: MakeTable, model: TrainedModel) -> None:
    narrower = table({"left": np.ones(3)})
    with pytest.raises(ConfigError, match=r"pipeline p: training.features: is not a column; known: left.*'right'"):
        predictor_of(model)(narrower.samples)


def test_weights_of_another_model_are_refused(separable: Table, model: TrainedModel) -> None:
    other = trained(separable, model={"name": "mlp", "hidden": [4]})
    with pytest.raises(ConfigError, match=r"pipeline p: training.model: the stored weights do not fit"):
        build_predictor(model.architecture, other.state_dict, threads=1, source="pipeline p")


def test_user_code_that_is_gone_is_named(separable: Table, user_code: str) -> None:
    found = trained(separable, model={"factory": f"{user_code}:linear"})
    architecture = found.architecture | {"model": {"factory": f"{user_code}:moved", "config": {}}}
    with pytest.raises(ImportPathError, match=r"pipeline p: training.model.factory: cannot be imported"):
        build_predictor(architecture, found.state_dict, threads=1, source="pipeline p")


def test_a_model_that_changes_its_shape_when_predicting_is_refused(table: MakeTable, user_code: str) -> None:
    rows = table({"a": np.arange(4.0), "b": np.arange(4.0)}, labels=np.arange(4) % 2)
    found = trained(rows, model={"factory": f"{user_code}:identity"})
    architecture = found.architecture | {"n_outputs": 3}
    with pytest.raises(WrongShape, match=r"returned shape \(4, 2\), expected \(4, 3\)"):
        build_predictor(architecture, found.state_dict, threads=1, source="pipeline p")(rows.samples)


@pytest.mark.process
def test_closing_ends_the_processes_of_its_parser(table: MakeTable, parsers: str) -> None:
    blobs = table({}, labels=np.arange(20) % 2, blobs=[b"%d" % i for i in range(20)])
    parser = {"function": f"{parsers}:one_number", "per": "sample", "workers": {"kind": "processes"}}
    model = trained(blobs, parser=parser)
    predict = build_predictor(model.architecture | {"parser": parser}, model.state_dict, threads=1, source="p")
    before = psutil.Process().children()
    with closing(predict):
        predict(blobs.samples)
        assert len(psutil.Process().children()) == len(before) + 1
    assert psutil.Process().children() == before
