"""Trainers of libraries give what the libraries give by hand, as exact bytes."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.model_store import ChangedLayers, Delta, ModelStore, Snapshot
from modyn_dagster.progress import TrainingProgress
from modyn_dagster.training import Task, build_predictor
from modyn_dagster.training.loop.fitting import require_room
from tests.training.trainers.fitted import (
    CLASSIFIERS,
    classes,
    content,
    estimator,
    fitted,
    logits,
    matrix,
    outputs,
    plain,
    previous,
    river,
    sklearn,
    targets,
)
from tests.variants import represented

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

#: Seed of the trainings.
SEED = 3
WEIGHTS = np.linspace(0.5, 4.0, 240).astype(np.float32)
#: Weights as trainers get them: with mean 1.
NORMED = WEIGHTS.astype(np.float64) / (WEIGHTS.sum(dtype=np.float64) / 240)


def in_lightgbm(x: Any, y: Any, weights: Any, before: Any = None) -> Any:
    fixed = {"num_threads": 1, "seed": SEED, "deterministic": True, "force_col_wise": True, "verbosity": -1}
    return lightgbm.train(
        {"objective": "multiclass", "num_class": 3, **fixed}, lightgbm.Dataset(x, y, weight=weights), 3, init_model=before
    )


def in_xgboost(x: Any, y: Any, weights: Any, before: Any = None) -> Any:
    parameters = {"objective": "multi:softprob", "num_class": 3, "nthread": 1, "seed": SEED}
    return xgboost.train(parameters, xgboost.DMatrix(x, y, weight=weights), 3, xgb_model=before)


def in_river(table: Any, weights: Any, model: Any) -> Any:
    for i, row in enumerate(rows(table)):
        model.learn_one(row, int(table.labels[i]), **({} if weights is None else {"w": float(weights[i])}))
    return model


def rows(table: Any) -> list[dict[str, float]]:
    return [dict(zip("abc", row, strict=True)) for row in matrix(table).astype(np.float64).tolist()]


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize(
    ("model", "oracle"),
    [
        (sklearn("linear_model:LogisticRegression", C=0.5), LogisticRegression(C=0.5)),
        (sklearn("ensemble:RandomForestClassifier", n_estimators=3), RandomForestClassifier(3, random_state=SEED)),
        (sklearn("naive_bayes:GaussianNB"), GaussianNB()),
    ],
)
def test_an_estimator_predicts_what_it_predicts_when_it_is_called_by_hand(model: Any, oracle: Any, weights: Any) -> None:
    table = classes()
    found = outputs(fitted(table, plain(model), weights=weights), table)
    oracle.fit(matrix(table), table.labels, sample_weight=None if weights is None else NORMED)
    np.testing.assert_array_equal(found, logits(oracle.predict_proba(matrix(table))))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_boosted_trees_are_those_of_the_library_from_scratch_and_continued(name: str, weights: Any) -> None:
    table, more = classes(), classes(seed=9)
    spec = plain({"name": name, "rounds": 3}, use_previous_model=True)
    first = fitted(table, spec, weights=weights)
    second = fitted(more, spec, weights=weights, previous=previous(first))
    train, given = (in_lightgbm, lambda x: x) if name == "lightgbm" else (in_xgboost, xgboost.DMatrix)
    normed = None if weights is None else NORMED
    begun = train(matrix(table), table.labels, normed)
    np.testing.assert_array_equal(outputs(first, table), logits(begun.predict(given(matrix(table)))))
    went_on = train(matrix(more), more.labels, normed, begun)
    np.testing.assert_array_equal(outputs(second, more), logits(went_on.predict(given(matrix(more)))))
    assert second.n_steps == 3
    assert [number for number, _ in second.curve] == [1, 2, 3]
    assert second.losses == [pytest.approx(second.curve[-1][1], rel=1e-3)] or weights is not None


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_a_model_of_river_learns_the_samples_in_the_order_of_their_keys_and_goes_on(weights: Any) -> None:
    from river.tree import HoeffdingTreeClassifier

    table, more = classes(), classes(seed=9)
    spec = plain(river("tree:HoeffdingTreeClassifier", grace_period=20), use_previous_model=True)
    first = fitted(table, spec, weights=weights)
    second = fitted(more, spec, weights=weights, previous=previous(first))
    normed = None if weights is None else NORMED
    by_hand = in_river(table, normed, HoeffdingTreeClassifier(grace_period=20))
    in_river(more, normed, by_hand)
    expected = np.zeros((240, 3))
    for i, row in enumerate(rows(more)):
        for number, probability in by_hand.predict_proba_one(row).items():
            expected[i, number] = probability
    np.testing.assert_array_equal(outputs(second, more), logits(expected / expected.sum(axis=1, keepdims=True)))


def test_partial_fit_is_told_all_classes_of_the_dataset_and_goes_on() -> None:
    table, more = classes(), classes(seed=9)
    assert table.labels is not None and more.labels is not None
    # The first training set lacks a class.
    table.labels[table.labels == 2] = 1
    spec = plain(sklearn("linear_model:SGDClassifier", loss="log_loss"), use_previous_model=True)
    first = fitted(table, spec)
    second = fitted(more, spec, previous=previous(first))
    by_hand = SGDClassifier(loss="log_loss", random_state=SEED)
    by_hand.partial_fit(matrix(table), table.labels, classes=[0, 1, 2])
    by_hand.partial_fit(matrix(more), more.labels)
    np.testing.assert_array_equal(outputs(second, more), logits(by_hand.predict_proba(matrix(more))))


@pytest.mark.parametrize(
    ("model", "oracle", "trees"),
    [
        (
            sklearn("ensemble:RandomForestClassifier", n_estimators=2),
            RandomForestClassifier(2, random_state=SEED, warm_start=True),
            {"n_estimators": 4},
        ),
        (
            sklearn("ensemble:HistGradientBoostingClassifier", max_iter=2),
            HistGradientBoostingClassifier(max_iter=2, random_state=SEED, warm_start=True),
            {"max_iter": 4},
        ),
        (sklearn("linear_model:LogisticRegression", max_iter=200), LogisticRegression(max_iter=200, warm_start=True), {}),
    ],
)
def test_an_ensemble_that_warm_starts_adds_as_many_trees_again(model: Any, oracle: Any, trees: Any) -> None:
    table, more = classes(), classes(seed=9)
    spec = plain(model, use_previous_model=True)
    second = fitted(more, spec, previous=previous(fitted(table, spec)))
    oracle.fit(matrix(table), table.labels)
    oracle.set_params(**trees).fit(matrix(more), more.labels)
    np.testing.assert_array_equal(outputs(second, more), logits(oracle.predict_proba(matrix(more))))


def test_a_warm_start_with_other_classes_is_refused() -> None:
    table = classes()
    spec = plain(sklearn("ensemble:RandomForestClassifier", n_estimators=2), use_previous_model=True)
    first = fitted(table, spec)
    assert table.labels is not None
    table.labels[table.labels == 2] = 1
    with pytest.raises(TrainingError, match=r"needs the same classes: the previous model knows \[0, 1, 2\], .* has \[0, 1\]"):
        fitted(table, spec, previous=previous(first))


def test_classes_that_a_training_set_lacks_have_no_probability() -> None:
    table = classes()
    assert table.labels is not None
    table.labels[table.labels == 1] = 2
    found = outputs(fitted(table, plain(sklearn("naive_bayes:GaussianNB"))), table)
    assert (found[:, 1] == logits(np.zeros(1))).all()
    assert np.isfinite(found).all()


def test_decision_values_become_probabilities_by_softmax() -> None:
    table = classes()
    found = outputs(fitted(table, plain(sklearn("svm:LinearSVC"))), table)
    scores = LinearSVC(random_state=SEED).fit(matrix(table), table.labels).decision_function(matrix(table))
    np.testing.assert_allclose(found - found[:, :1], scores - scores[:, :1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        sklearn("linear_model:Ridge"),
        {"name": "lightgbm", "rounds": 4},
        {"name": "xgboost", "rounds": 4},
        river("linear_model:LinearRegression"),
        river("tree:HoeffdingTreeRegressor"),
    ],
    ids=lambda model: model.get("estimator", model["name"]),
)
def test_targets_are_predicted_as_values(model: dict[str, Any]) -> None:
    table = targets()
    assert table.targets is not None
    trained = fitted(table, plain(model))
    found = outputs(trained, table)
    assert found.shape == (240, 1)
    assert trained.losses[0] < np.var(table.targets)
    if model["name"] == "sklearn":
        by_hand = Ridge(random_state=SEED).fit(matrix(table), table.targets)
        np.testing.assert_array_equal(found[:, 0], by_hand.predict(matrix(table)).astype(np.float32))


def test_inputs_are_standardised_as_those_of_networks_are_and_a_continued_model_keeps_its_scale() -> None:
    table, more = classes(), classes(seed=9)
    more.columns = {name: 10 * column for name, column in more.columns.items()}
    spec = plain({"name": "lightgbm", "rounds": 2}, use_previous_model=True).model_copy(update={"standardize": True})
    first = fitted(table, spec)
    x = matrix(table).astype(np.float64)
    np.testing.assert_allclose(first.state_dict["standardize.mean"].numpy(), x.mean(axis=0), atol=1e-6)
    second = fitted(more, spec, previous=previous(first))
    np.testing.assert_array_equal(first.state_dict["standardize.mean"], second.state_dict["standardize.mean"])


@represented("model", CLASSIFIERS, "laws-training", "sklearn", "lightgbm", "xgboost", "river")
def test_the_same_fit_gives_the_same_bytes_and_bytes_give_the_same_model(model: dict[str, Any]) -> None:
    table = classes()
    one, other = (fitted(table, plain(model, use_previous_model=False)) for _ in range(2))
    assert content(one) == content(other)
    assert one.losses == other.losses
    assert outputs(one, table).tobytes() == outputs(other, table).tobytes()
    assert one.architecture["library"]["name"] in ("scikit-learn", "lightgbm", "xgboost", "river")


@pytest.mark.parametrize("strategy", [Snapshot(), Delta(), ChangedLayers()], ids=lambda strategy: type(strategy).__name__)
def test_every_strategy_of_the_store_keeps_the_bytes(strategy: Any, tmp_path: Any) -> None:
    table, more = classes(), classes(seed=9)
    spec = plain({"name": "xgboost", "rounds": 3}, use_previous_model=True)
    first = fitted(table, spec)
    second = fitted(more, spec, previous=previous(first))
    store = ModelStore(tmp_path / "models")
    base = store.save(first.state_dict, strategy=Snapshot())
    model = store.save(second.state_dict, base=base, strategy=strategy)
    loaded = store.load(model)
    assert loaded["body.content"].numpy().tobytes() == content(second)
    predictor = build_predictor(second.architecture, loaded, threads=1, source="p")
    assert predictor(more.samples).tobytes() == outputs(second, more).tobytes()


def test_a_nested_estimator_may_stand_anywhere_among_the_parameters() -> None:
    table = classes()
    model = sklearn(
        "ensemble:VotingClassifier",
        estimators=[
            ["near", estimator("sklearn.neighbors:KNeighborsClassifier", n_neighbors=1)],
            [
                "bagged",
                estimator(
                    "sklearn.ensemble:BaggingClassifier",
                    n_estimators=2,
                    estimator=estimator("sklearn.tree:DecisionTreeClassifier"),
                ),
            ],
        ],
        voting="soft",
    )
    found = outputs(fitted(table, plain(model)), table)
    near = KNeighborsClassifier(n_neighbors=1).fit(matrix(table), table.labels).predict(matrix(table))
    np.testing.assert_array_equal(found.argmax(axis=1), near)


def test_rounds_are_shown_as_steps_are() -> None:
    seen: list[TrainingProgress] = []
    fitted(classes(), plain({"name": "xgboost", "rounds": 3}), progress=seen.append)
    assert [(each.step, each.n_steps) for each in seen] == [(1, 3), (2, 3), (3, 3)]
    seen.clear()
    fitted(classes(), plain(sklearn("naive_bayes:GaussianNB")), progress=seen.append)
    assert [(each.step, each.n_steps) for each in seen] == [(1, 1)]


@pytest.mark.parametrize(
    "model",
    [
        {"name": "lightgbm", "rounds": 2, "parameters": {"metric": "None"}},
        {"name": "xgboost", "rounds": 2, "parameters": {"disable_default_eval_metric": True}},
    ],
    ids=lambda model: model["name"],
)
def test_without_a_metric_there_is_no_curve(model: dict[str, Any]) -> None:
    found = fitted(classes(), plain(model))
    assert (found.curve, found.n_steps) == ([], 0)
    assert np.isfinite(found.losses).all()


def test_weights_of_an_estimator_without_them_are_refused() -> None:
    with pytest.raises(TrainingError, match="sklearn cannot weigh samples, and those of the training set have weights"):
        fitted(classes(), plain(sklearn("neighbors:KNeighborsClassifier")), weights=WEIGHTS)
    fitted(classes(), plain(sklearn("neighbors:KNeighborsClassifier")), weights=np.full(240, 2.5))


def test_a_failing_fit_is_an_error_of_training_that_names_the_model() -> None:
    with pytest.raises(TrainingError, match=r"pipeline p: training.model: sklearn failed: .*'C' parameter"):
        fitted(classes(), plain(sklearn("linear_model:LogisticRegression", C=-1)))


def test_a_training_set_beyond_memory_is_refused_with_its_size() -> None:
    require_room(1000, 12, 36_000, source="pipeline p")
    with pytest.raises(TrainingError, match="1,000 samples of 12 bytes need 36,000 bytes of memory at once, and 35,999 are free"):
        require_room(1000, 12, 35_999, source="pipeline p")


def test_a_previous_model_of_another_kind_is_refused() -> None:
    table = classes()
    first = fitted(table, plain({"name": "logistic_regression"}))
    with pytest.raises(ConfigError, match="use_previous_model: the previous model has other weights"):
        fitted(table, plain({"name": "lightgbm"}, use_previous_model=True), previous=previous(first))


def test_a_model_file_of_another_library_is_refused() -> None:
    table = classes()
    model = fitted(table, plain(CLASSIFIERS["sklearn"]))
    for name, sentence in (("lightgbm", "is no model of LightGBM"), ("xgboost", "is no model of XGBoost")):
        architecture = model.architecture | {"model": {"name": name}}
        with pytest.raises(ConfigError, match=sentence):
            build_predictor(architecture, model.state_dict, threads=1, source="p")


def test_a_task_needs_an_estimator_of_its_kind() -> None:
    with pytest.raises(ConfigError, match="is no regressor, and the label to learn is a target"):
        fitted(targets(), plain(sklearn("linear_model:LogisticRegression")))
    with pytest.raises(ConfigError, match=r"tells two classes apart, and there are 3: wrap it in river.multiclass"):
        fitted(classes(), plain(river("linear_model:LogisticRegression")))
    with pytest.raises(ConfigError, match="must be a class that derives from sklearn's BaseEstimator"):
        fitted(classes(), plain(sklearn("datasets:make_blobs")))


def test_two_classes_have_two_outputs() -> None:
    table = classes()
    assert table.labels is not None
    table.labels[table.labels == 2] = 1
    for model in (CLASSIFIERS["lightgbm"], CLASSIFIERS["xgboost"]):
        from tests.training.trained import trained

        found = outputs(trained(table, plain(model), task=Task("class", 2)), table)
        np.testing.assert_allclose(np.exp(found.astype(np.float64)).sum(axis=1), 1, rtol=1e-6)
        assert (found.argmax(axis=1) == table.labels).mean() > 0.9


def test_another_version_of_the_library_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = classes()
    model = fitted(table, plain(CLASSIFIERS["sklearn"]))
    found = model.architecture["library"]["version"]
    assert not caplog.messages
    architecture = model.architecture | {"library": {"name": "scikit-learn", "version": "0.1"}}
    build_predictor(architecture, model.state_dict, threads=1, source="p")
    assert caplog.messages == [f"p: the model was fitted by scikit-learn 0.1, and is read by {found}"]
