"""Texts become tokens by a tokenizer of the project's, or by one that transformers loads from a folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from modyn_dagster.errors import BadSample, ConfigError, ImportPathError
from modyn_dagster.spec.learning.parsing import Parser
from modyn_dagster.training import FastPath, build_predictor, check_user_code
from modyn_dagster.training.parsing.parser import Parsing
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained
from tests.training.transforming import CODE

pytestmark = pytest.mark.usefixtures("user_code")

OWN: dict[str, Any] = {"factory": f"{CODE}:tokens", "length": 4}


def parsing(**tokenizer: Any) -> Parsing:
    return Parsing(TypeAdapter(Parser).validate_python({"tokenizer": tokenizer}), "pipeline p")


def words(*texts: str) -> Table:
    return Table({}, labels=np.arange(len(texts)) % 2, blobs=[text.encode() for text in texts])


def tokens(table: Table, **tokenizer: Any) -> list[list[int]]:
    found: list[list[int]] = parsing(**tokenizer)(table.samples)["features"].tolist()
    return found


def test_texts_are_cut_off_or_filled_up() -> None:
    assert tokens(words("abc", "", "abcdef"), **OWN) == [[1, 2, 3, 0], [0, 0, 0, 0], [1, 2, 3, 4]]
    assert tokens(words("ab"), **OWN, pad=99, config={"first": 5}) == [[5, 6, 99, 99]]


def test_columns_are_joined_and_missing_ones_are_empty() -> None:
    table = Table({"a": np.array(["a", None], dtype=object), "b": np.array(["b", "c"], dtype=object)}, labels=np.array([0, 1]))
    assert tokens(table, **OWN, columns=["a", "b"]) == [[1, ord(" ") - ord("a") + 1, 2, 0], [3, 0, 0, 0]]
    with pytest.raises(ConfigError, match=r"training\.parser\.tokenizer\.columns.*known: a, b .*'c'"):
        tokens(table, **OWN, columns=["c"])


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_a_text_that_it_fails_on_is_named(columns: list[str] | None) -> None:
    texts = ["a", "b\x00", "c"]
    table = Table({"a": np.array(texts, dtype=object)}, labels=np.zeros(3, np.int64), blobs=[text.encode() for text in texts])
    with pytest.raises(BadSample, match=f"tokenizer failed on the sample with key {table.keys[1]}: ValueError: no such letter"):
        tokens(table, **OWN, columns=columns)


@pytest.mark.parametrize(
    ("tokenizer", "rule"),
    [
        ({"factory": f"{CODE}:no_tokens"}, "whole numbers for each of 2 texts"),
        ({"factory": f"{CODE}:not_callable"}, "must return a callable, not int"),
        ({"factory": f"{CODE}:tokens", "config": {"last": 1}}, "refused it: TypeError"),
        ({"path": "nowhere"}, "there is no folder"),
    ],
)
def test_what_is_no_tokenizer_is_refused(tokenizer: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        tokens(words("a", "b"), **tokenizer)


def test_a_parser_has_a_folder_or_a_factory() -> None:
    for content in ({}, {"path": "x", **OWN}):
        with pytest.raises(ValidationError, match="give either `path` or `factory`"):
            parsing(**content)
    with pytest.raises(ImportPathError, match=r"training\.parser\.tokenizer\.factory"):
        check_user_code(spec_of(parser={"tokenizer": {"factory": f"{CODE}:nowhere"}}), source="p")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with the tokenizer of a BERT that knows few words."""
    transformers = pytest.importorskip("transformers")
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "book", "##s"]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(known))
    transformers.BertTokenizerFast(vocab_file=str(vocabulary)).save_pretrained(tmp_path / "tokenizers" / "small")
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    return "tokenizers/small"


def test_a_folder_of_transformers_with_its_signs_at_both_ends(folder: str) -> None:
    assert tokens(words("Good books", "bad film"), path=folder, length=6) == [[2, 5, 7, 8, 3, 0], [2, 6, 1, 3, 0, 0]]
    assert tokens(words("good books good"), path=folder, length=4) == [[2, 5, 7, 3]], "the last sign survives"


def test_a_model_learns_from_tokens_and_is_asked_with_them(folder: str) -> None:
    table = words(*["good books", "bad book"] * 20)
    model = {"name": "hashed_text", "buckets": 10, "embedding": 4, "hidden": [4]}
    described = spec_of(parser={"tokenizer": {"path": folder, "length": 6}}, model=model, epochs=20, optimizer={"lr": 0.1})
    found = trained(table, described)
    assert_same_bits(trained(table, described, fast_path=FastPath(cache_bytes=0, threads=2)).state_dict, found.state_dict)
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    assert (predict(table.samples).argmax(1) == table.labels).all()
