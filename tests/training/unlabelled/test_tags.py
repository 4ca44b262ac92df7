"""Sequence labelling: tags of tokens, the spans that they name, and texts whose words have tags."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch.nn import functional

from modyn_dagster.errors import BadSample, ConfigError, TrainingError
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.learning.parsing import Parser
from modyn_dagster.spec.tasks.objectives import IGNORED, TokenTagsSpec
from modyn_dagster.training.objectives.spans import SpanScheme
from modyn_dagster.training.objectives.tags import TokenTags
from modyn_dagster.training.parsing.parser import Parsing
from tests.training.pretrained.tiny_networks import write_bert
from tests.training.table import Table

TAGS: Final = ["O", "B-PLACE", "I-PLACE", "B-NAME", "I-NAME"]
CODE: Final = "unlabelled_user_code"

Texts = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4)), min_size=7, max_size=7), min_size=1, max_size=6)


def spans_by_hand(tags: list[str]) -> set[tuple[int, int, str]]:
    """Spans (first token, last token, kind), tag after tag."""
    spans, first, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        if kind and (tag == "O" or tag[0] == "B" or tag[2:] != kind):
            spans.add((first, place - 1, kind))
            kind = ""
        if tag != "O" and not kind:
            first, kind = place, tag[2:]
    return spans


@given(Texts)
def test_spans_are_those_read_tag_after_tag(texts: list[list[tuple[int, int]]]) -> None:
    """Pairs are predicted and true tags; -1 is a token without a tag, which spans reach over."""
    pairs = torch.tensor(texts)
    predicted, true = pairs[..., 0], torch.where(pairs[..., 1] < 0, IGNORED, pairs[..., 1])
    expected = []
    for text in texts:
        tagged = [(TAGS[one], TAGS[other]) for one, other in text if other >= 0]
        found, right = (spans_by_hand([pair[side] for pair in tagged]) for side in (0, 1))
        expected.append([len(found & right), len(found), len(right)])
    assert SpanScheme(TAGS).counts(predicted, true).tolist() == expected


@given(st.integers(0, 2**20), st.integers(1, 6), st.integers(1, 5))
def test_the_loss_of_a_text_is_torchs_cross_entropy_of_its_tagged_tokens(seed: int, n: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    objective = TokenTags(TokenTagsSpec(name="token_tags", tags=TAGS), length, "p")
    tags = np.where(rng.random((n, length)) < 0.3, IGNORED, rng.integers(0, 5, (n, length)))
    inputs = torch.from_numpy(np.stack([rng.integers(0, 9, (n, length)), tags], axis=1))
    tokens, targets = objective.pose(inputs, keys_of(3, np.arange(n)), 0)
    assert torch.equal(tokens, inputs[:, 0])
    assert torch.equal(objective.shown(inputs), tokens)
    outputs = torch.from_numpy(rng.normal(size=(n, length, 5)))
    losses, measures = (function(outputs.flatten(1), targets) for function in (objective.loss, objective.measures))
    for row, own in enumerate(targets):
        tagged = own != IGNORED
        if tagged.any():
            torch.testing.assert_close(losses[row], functional.cross_entropy(outputs[row][tagged], own[tagged]))
        else:
            assert float(losses[row]) == 0
        assert int(measures[row, 1]) == int((outputs[row].argmax(1) == own)[tagged].sum())
        assert int(measures[row, 2]) == int(tagged.sum())
    assert measures[:, 3:].tolist() == SpanScheme(TAGS).counts(outputs.argmax(2), targets).tolist()


def test_tags_that_name_no_spans_have_none() -> None:
    spec = TokenTagsSpec(name="token_tags", tags=["NOUN", "VERB"])
    assert not spec.name_spans
    measures = TokenTags(spec, 2, "p").measures(torch.tensor([[3.0, 1, 0, 2]]), torch.tensor([[0, 0]]))
    assert measures[0, 1:].tolist() == [1, 2, 0, 0, 0]


@pytest.mark.parametrize("number", [-1, 5])
def test_a_number_that_is_none_of_a_tag_is_named_by_key_and_token(number: int) -> None:
    objective, keys = TokenTags(TokenTagsSpec(name="token_tags", tags=TAGS), 2, "p"), keys_of(3, np.arange(2))
    inputs = torch.tensor([[[1, 2], [0, 1]], [[1, 2], [0, number]]])
    with pytest.raises(
        TrainingError, match=rf"loss\.tags: token 2 of the sample with key {keys[1]} has tag {number}, tags are 0 to 4"
    ):
        objective.pose(inputs, keys, 0)
    with pytest.raises(TrainingError, match="tokens and tags are whole numbers"):
        objective.pose(inputs.double(), keys, 0)


@pytest.mark.parametrize("tags", [["O"], ["O", "O"], ["O", "two words"], ["O", ""]])
def test_tags_are_two_or_more_different_names_without_spaces(tags: list[str]) -> None:
    with pytest.raises(ValidationError):
        TokenTagsSpec(name="token_tags", tags=tags)


def parsed(words: list[Any], tags_of_words: list[Any], **tokenizer: Any) -> list[Any]:
    table = Table({"words": np.array(words, dtype=object), "tags": np.array(tags_of_words, dtype=object)})
    spec = {"tokenizer": {"columns": ["words"], "tags": "tags", "length": 4} | tokenizer}
    parse = Parsing(TypeAdapter(Parser).validate_python(spec), "pipeline p", tags=TAGS)
    features: list[Any] = parse(table.samples)["features"].tolist()
    return features


@pytest.mark.usefixtures("user_code")
def test_every_word_has_its_tag() -> None:
    found = parsed(["3 1", "4", "5 6 7 8 2", None], ["O B-NAME", None, "O O O O I-PLACE", ""], factory=f"{CODE}:Words")
    assert found == [
        [[3, 1, 0, 0], [0, 3, IGNORED, IGNORED]],
        [[4, 0, 0, 0], [IGNORED] * 4],
        [[5, 6, 7, 8], [0, 0, 0, 0]],
        [[0, 0, 0, 0], [IGNORED] * 4],
    ]


def test_the_first_token_of_a_word_has_its_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    write_bert(tmp_path / "bert", pieces=["##s"])
    # [CLS] 2, [SEP] 3, good 5, film 7, ##s 10: "films" becomes two tokens.
    found = parsed(["films good", "good"], ["B-NAME O", "O"], path="bert", length=6)
    assert found == [
        [[2, 7, 10, 5, 3, 0], [IGNORED, 3, IGNORED, 0, IGNORED, IGNORED]],
        [[2, 5, 3, 0, 0, 0], [IGNORED, 0, IGNORED, IGNORED, IGNORED, IGNORED]],
    ]
    assert parsed(["films good"], ["B-NAME O"], path="bert", length=4) == [[[2, 7, 10, 3], [IGNORED, 3, IGNORED, IGNORED]]]


@pytest.mark.usefixtures("user_code")
@pytest.mark.parametrize(
    ("words", "tags", "reason"),
    [
        ("3 1", "O", "words: 2, tags in column 'tags': 1"),
        ("3 1", "O PLACE", r"column 'tags' has the tag 'PLACE'; training\.loss\.tags are O, B-PLACE"),
        ("3 1.", "O O", "makes 3 tokens of 2 words, and tags need one for each"),
        ("\x00 1", "O O", "no such letter"),
    ],
)
def test_a_text_whose_tags_do_not_fit_is_named(words: str, tags: str, reason: str) -> None:
    with pytest.raises(BadSample, match=f"tokenizer failed on the sample with key .*{reason}"):
        parsed(["3", words], ["O", tags], factory=f"{CODE}:Pieces")


@pytest.mark.usefixtures("user_code")
def test_a_column_of_tags_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"training\.parser\.tokenizer\.tags.*known: words, tags .*'labels'"):
        parsed(["3"], ["O"], factory=f"{CODE}:Words", tags="labels")
    with pytest.raises(ValidationError, match="tags: needs `columns`"):
        parsed(["3"], ["O"], factory=f"{CODE}:Words", tags="words")


def test_a_slow_tokenizer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    tokenizers = tmp_path / "slow_tokenizers.py"
    tokenizers.write_text("class Slow:\n    pad_token_id = 0\n    is_fast = False\n    def __call__(self, texts): return []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"training\.parser\.tokenizer\.tags: needs a fast tokenizer"):
        parsed(["3"], ["O"], factory="slow_tokenizers:Slow")
