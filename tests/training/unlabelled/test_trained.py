"""Models trained without a label: what they learn, the same bits from memory and as a stream, and their predictors."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, Predictor, PreviousModel, Task, TrainedModel, build_predictor
from modyn_dagster.training.data import MEASURES, OUTPUTS
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained
from tests.variants import represented

CODE = "unlabelled_user_code"
NOISE = [{"function": f"{CODE}:jittered", "when": "train"}]
TEXTS: dict[str, Any] = {"parser": {"tokenizer": {"factory": f"{CODE}:Words", "length": 6}}, "epochs": 8, "batch_size": 16}
ADAM: dict[str, Any] = {"name": "adam", "lr": 0.02}
#: One training of each objective.
SPECS: dict[str, dict[str, Any]] = {
    "reconstruction": {"model": {"name": "mlp", "hidden": [8]}, "loss": {"name": "reconstruction"}, "epochs": 20},
    "contrastive": {
        "model": {"name": "mlp", "hidden": [8]},
        "loss": {"name": "nt_xent", "dimension": 4},
        "transforms": NOISE,
        "epochs": 10,
        "batch_size": 32,
    },
    "causal": {"model": {"factory": f"{CODE}:Transformer"}, "loss": {"name": "causal_tokens", "vocabulary": 10}} | TEXTS,
    "masked": {
        "model": {"factory": f"{CODE}:Transformer", "config": {"causal": False}},
        "loss": {"name": "masked_tokens", "vocabulary": 10, "mask": 9},
    }
    | TEXTS,
    "tags": {
        "model": {"factory": f"{CODE}:Tagger", "config": {"vocabulary": 10}},
        "parser": {"tokenizer": {"factory": f"{CODE}:Words", "columns": ["words"], "tags": "tags", "length": 6}},
        "loss": {"name": "token_tags", "tags": ["O", "B-RISE", "I-RISE"]},
        "epochs": 8,
        "batch_size": 16,
    },
}
#: A metric of each, and whether it is to fall.
METRICS = {
    "reconstruction": ("reconstruction_mse", True),
    "contrastive": ("nt_xent", True),
    "causal": ("perplexity", True),
    "masked": ("token_accuracy", False),
    "tags": ("span_f1", False),
}


@pytest.fixture(autouse=True)
def own_code(user_code: str) -> None:
    """The trainings name it."""


def table_of(name: str, n: int = 120) -> Table:
    rng = np.random.default_rng(5)
    if name in ("causal", "masked"):
        starts, lengths = rng.integers(1, 9, n), rng.integers(2, 7, n)
        texts = [" ".join(str(1 + (start + i) % 8) for i in range(k)) for start, k in zip(starts, lengths, strict=True)]
        return Table({}, blobs=[text.encode() for text in texts])
    if name == "tags":
        words = [" ".join(map(str, rng.integers(1, 10, rng.integers(1, 7)))) for _ in range(n)]
        return Table({"words": np.array(words, dtype=object), "tags": np.array([tags_of(text) for text in words], dtype=object)})
    hidden = rng.normal(size=(n, 1))
    values = hidden @ rng.normal(size=(1, 3)) + 0.1 * rng.normal(size=(n, 3))
    return Table(dict(zip("xyz", values.T, strict=True)))


def tags_of(words: str) -> str:
    """Runs of numbers above 5 are spans."""
    names, last = [], "O"
    for word in words.split():
        last = "O" if int(word) <= 5 else ("B-RISE" if last == "O" else "I-RISE")
        names.append(last)
    return " ".join(names)


def spec(name: str, **fields: object) -> TrainingSpec:
    return spec_of(**{"optimizer": ADAM} | SPECS[name] | fields)


def model_of(name: str, fast_path: FastPath = FastPath(), **fields: object) -> TrainedModel:  # noqa: B008 - frozen
    found = spec(name, **fields)
    kind = kind_of_objective(found.loss)
    assert kind is not None
    return trained(table_of(name), found, task=Task(kind), fast_path=fast_path)


@pytest.fixture
def predictor() -> Iterator[Any]:
    made: list[Predictor] = []

    def make(model: TrainedModel) -> Predictor:
        made.append(build_predictor(model.architecture, model.state_dict, threads=1, source="p"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@represented("name", list(SPECS), "laws-training", "masked")
def test_training_lowers_the_loss_and_improves_the_metric(name: str, predictor: Any) -> None:
    begun, ended = model_of(name, max_steps=1), model_of(name)
    assert ended.losses[-1] < ended.losses[0]
    metric, falls = METRICS[name]
    table = table_of(name)
    before, after = (score(metric, predictor(model).measures(table.samples), np.zeros(table.n)).value for model in (begun, ended))
    assert before is not None
    assert after is not None
    assert (after < before) is falls


@represented("name", list(SPECS), "laws-training", "contrastive", "masked")
def test_a_set_in_memory_and_a_streamed_one_train_the_same_bits(name: str) -> None:
    memory, streamed = (model_of(name, FastPath(cache_bytes=n), epochs=2) for n in (1 << 20, 0))
    assert_same_bits(memory.state_dict, streamed.state_dict)


@represented("name", list(SPECS), "laws-training", "reconstruction", "contrastive")
def test_a_predictor_answers_without_a_label_and_measures_the_same_every_time(name: str, predictor: Any) -> None:
    model, samples = model_of(name, epochs=1), table_of(name).samples
    found = predictor(model)
    width = {"reconstruction": 3, "contrastive": 4, "causal": 60, "masked": 60, "tags": 18}[name]
    assert found(samples).shape == (120, width)
    measures = found.measures(samples)
    assert measures.shape == (120, found.n_measures)
    np.testing.assert_array_equal(measures, predictor(model).measures(samples))
    tapped = found.tapped(samples, {OUTPUTS, MEASURES})
    np.testing.assert_array_equal(tapped[OUTPUTS], found(samples))
    np.testing.assert_array_equal(tapped[MEASURES], measures)
    assert found.judged(samples).targets.tolist() == [0.0] * 120


def test_measures_of_a_reconstruction_are_its_errors_on_standardised_inputs(predictor: Any) -> None:
    table = table_of("reconstruction")
    found = predictor(model_of("reconstruction", epochs=2))
    values = np.stack([table.columns[name] for name in "xyz"], axis=1)
    inputs = (values - values.mean(axis=0)) / values.std(axis=0)
    errors = found(table.samples) - inputs
    expected = np.stack([np.square(errors).mean(axis=1), np.abs(errors).mean(axis=1)], axis=1)
    np.testing.assert_allclose(found.measures(table.samples), expected, rtol=1e-4, atol=1e-5)


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_tokens(predictor: Any) -> None:
    model = model_of("causal", model={"factory": f"{CODE}:uniform_logits"}, epochs=1)
    table = table_of("causal")
    measures = predictor(model).measures(table.samples)
    assert score("perplexity", measures, np.zeros(table.n)).value == pytest.approx(10, rel=1e-5)
    assert score("token_cross_entropy", measures, np.zeros(table.n)).value == pytest.approx(np.log(10), rel=1e-6)


def test_views_draw_apart_and_anew_in_every_epoch(predictor: Any) -> None:
    found = model_of("contrastive", epochs=2, optimizer={"name": "sgd", "lr": 1e-30})
    assert found.losses[0] != found.losses[1]
    measures = predictor(found).measures(table_of("contrastive").samples)
    assert not np.array_equal(measures[:, :4], measures[:, 4:])


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(WrongShape, match=r"training\.model"):
        model_of("reconstruction", model={"factory": f"{CODE}:one_row_short"})


def test_an_image_is_reconstructed_whatever_the_shape_of_the_outputs(predictor: Any) -> None:
    rng = np.random.default_rng(2)
    table = Table({"image": rng.normal(size=(40, 2, 3))})
    found = spec_of(model={"name": "mlp", "hidden": [4]}, loss={"name": "reconstruction", "error": "l1"}, epochs=1)
    model = trained(table, found, task=Task("reconstruction"))
    assert predictor(model)(table.samples).shape == (40, 6)


def test_encoded_and_imputed_columns_are_reconstructed_as_the_model_sees_them(predictor: Any) -> None:
    rng = np.random.default_rng(4)
    size = np.where(rng.random(40) < 0.3, np.nan, rng.normal(size=40))
    table = Table({"size": size, "city": np.array(["rome", "oslo"] * 20, dtype=object)})
    encoding: dict[str, Any] = {"encode": {"city": {"kind": "one_hot"}}, "impute": {"size": {"indicator": True}}}
    model = trained(table, spec_of(loss={"name": "reconstruction"}, epochs=1, **encoding), task=Task("reconstruction"))
    assert model.architecture["n_outputs"] == predictor(model)(table.samples).shape[1]
    assert np.isfinite(predictor(model).measures(table.samples)).all()


HF: dict[str, Any] = {"name": "hf", "config": {"model_type": "distilbert"}}
OWN = f"{CODE}:tokens_and_tags"
TAGGED = {key: value for key, value in SPECS["tags"].items() if key in ("model", "parser", "loss")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss": None}, r"training\.loss: compares outputs with a label, and the dataset has none: use .*reconstruction"),
        ({"loss": "mse"}, r"training\.loss: compares outputs with a label"),
        ({"loss": {"factory": f"{CODE}:Words"}}, r"training\.loss: compares outputs with a label"),
        ({"label_transform": {"above": 1}}, r"training\.label_transform: changes labels"),
        ({"model": {"name": "sklearn", "estimator": "sklearn.svm:SVC"}}, r"training\.model\.name: learns from labels"),
        ({"downsampling": {"policy": "margin"}}, r"training\.downsampling\.policy: needs labels, .* use uniform, .*, loss"),
        ({"downsampling": {"policy": "uniform", "options": {"balance": "equal"}}}, r"options\.balance: balances classes"),
        ({"encode": {"x": {"kind": "embedding"}}}, r"training\.encode: reconstruction has no use for numbers of rows"),
        ({"parser": {"text": {"columns": ["x"]}}}, r"training\.loss\.name: numbers of tokens have no distance"),
        ({"loss": {"name": "nt_xent"}}, r"training\.transforms: nt_xent compares two views"),
        ({"loss": {"name": "nt_xent"}, "transforms": NOISE, "batch_size": 1}, r"training\.batch_size: .* at least 2"),
        ({"loss": {"name": "nt_xent"}, "transforms": NOISE, "accumulate": 2}, r"training\.accumulate: .* raise batch_size"),
        ({"loss": {"name": "nt_xent"}, "transforms": NOISE, "downsampling": {"policy": "loss"}}, r"policy: needs labels, or"),
        ({"loss": {"name": "causal_tokens", "vocabulary": 9}}, r"training\.model\.name: has no outputs per token"),
        ({"loss": {"name": "token_tags", "tags": ["A", "B"]}}, r"training\.model\.name: has no outputs per token"),
        ({"model": HF | {"task": "causal_lm"}, "parser": OWN}, r"training\.model\.task: is for the loss causal_tokens"),
        (
            {"model": HF | {"task": "masked_lm"}, "parser": OWN, "loss": {"name": "causal_tokens", "vocabulary": 9}},
            r"training\.model\.task: has no outputs that causal_tokens needs; use causal_lm",
        ),
        (
            TAGGED | {"parser": {"tokenizer": {"factory": f"{CODE}:Words", "columns": ["words"]}}},
            r"training\.parser\.tokenizer\.tags: must name the column",
        ),
        (TAGGED | {"parser": {"text": {"columns": ["words"]}}}, r"training\.parser: token_tags takes tokens and their tags"),
        (TAGGED | {"transforms": NOISE}, r"training\.transforms: would change tokens and tags alike"),
        (
            {"loss": {"name": "causal_tokens", "vocabulary": 9}, "model": {"factory": f"{CODE}:Transformer"}},
            r"training\.parser: causal_tokens takes rows of token numbers",
        ),
        (
            {
                "loss": {"name": "causal_tokens", "vocabulary": 9},
                "model": {"factory": f"{CODE}:Transformer"},
                "parser": {"text": {"columns": ["x"], "buckets": 9}},
            },
            r"training\.loss\.vocabulary: the parser makes numbers up to 9, so at least 10",
        ),
    ],
)
def test_what_needs_a_label_or_does_not_fit_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    given = {"model": {"name": "mlp"}, "loss": {"name": "reconstruction"}} | fields
    with pytest.raises(ConfigError, match=message):
        trained(table_of("reconstruction"), spec_of(**given), task=Task("reconstruction"))


def test_a_loss_without_labels_is_refused_where_there_is_one(separable: Table) -> None:
    with pytest.raises(ConfigError, match=r"training\.loss\.name: .*label is a class: give .*kind: none.*or use cross_entropy"):
        trained(separable, spec_of(loss={"name": "reconstruction"}))


def test_a_network_of_tokens_is_refused_where_there_is_a_label(separable: Table) -> None:
    model = HF | {"task": "token_classification"}
    with pytest.raises(ConfigError, match=r"training\.model\.task: is for the loss token_tags, .*label is a class"):
        trained(separable, spec_of(model=model, parser=OWN))


def test_a_parser_that_makes_no_tags_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.parser: needs whole numbers \[2, length\] per sample, .* not \[6\]"):
        model_of("causal", loss=SPECS["tags"]["loss"], parser=f"{CODE}:tokens_alone")


def test_a_parser_of_ones_own_may_make_tokens_and_tags(predictor: Any) -> None:
    table = Table({}, blobs=[f"{words}\n{tags_of(words)}".encode() for words in ("1 7 8", "9 2", "6")])
    own = trained(table, spec("tags", parser=OWN, epochs=1), task=Task("tags"))
    assert predictor(own)(table.samples).shape == (3, 18)


@pytest.mark.parametrize("name", ["reconstruction", "causal"])
def test_the_highest_losses_can_be_trained_on(name: str) -> None:
    assert model_of(name, downsampling={"policy": "loss", "ratio": 0.5}, epochs=1).n_steps > 0


def test_a_training_goes_on_from_an_earlier_model_without_labels() -> None:
    first = model_of("reconstruction", epochs=1)
    previous = PreviousModel(first.state_dict, first.architecture)
    again = trained(table_of("reconstruction"), spec("reconstruction", epochs=1), task=Task("reconstruction"), previous=previous)
    assert again.losses[0] < first.losses[0]


def test_restored_generators_are_not_touched_by_masks() -> None:
    before = torch.random.get_rng_state()
    model_of("masked", epochs=1)
    assert torch.equal(before, torch.random.get_rng_state())
