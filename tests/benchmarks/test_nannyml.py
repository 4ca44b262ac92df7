"""The benchmark against NannyML reads its files, and its formulas and ours agree where there is nothing to estimate wrongly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import nannyml
from benchmarks.nannyml_examples import EXAMPLES, Example

ROWS = 600


def write_example(example: Example, folder: Path) -> Example:
    """Write files of calibrated probabilities with the columns of an example, and return it with chunks that fit them."""
    rng = np.random.default_rng(len(example.classes))
    columns = list(example.classes.values())
    for file in example.files[:2]:
        logits = 2 * rng.standard_normal((ROWS, max(2, len(columns))))
        shares = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).round(2)
        shares[:, -1] = 1 - shares[:, :-1].sum(axis=1)
        classes = (rng.random((ROWS, 1)) >= np.cumsum(shares[:, :-1], axis=1)).sum(axis=1)
        labels = classes if len(columns) == 1 else np.array(list(example.classes))[classes]
        rows = pd.DataFrame(shares[:, -len(columns) :].clip(0, 1), columns=columns)
        if file == example.files[0]:
            rows[example.label] = labels
        else:
            pd.DataFrame({example.label: labels}).to_csv(folder / example.files[2], index=False)
        rows.to_csv(folder / file, index=False)
    return replace(example, chunk_size=ROWS // 2)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_estimate_and_formulas_stand_beside_the_published_number_and_the_realized_score(example, tmp_path):
    example = write_example(example, tmp_path)
    lines = list(nannyml.lines(example, tmp_path, draws=40))
    assert [(line.metric, line.chunk) for line in lines] == [(m, c) for c in range(2) for m in example.published]
    for line in lines:
        assert line.published == example.published[line.metric][line.chunk]
        assert line.value == pytest.approx(line.formulas, abs=0.05)
        assert line.realized == pytest.approx(line.formulas, abs=0.1)
        assert line.low <= line.value <= line.high


def test_the_newest_samples_alone_calibrate_where_their_number_is_given(tmp_path):
    example = write_example(EXAMPLES[0], tmp_path)
    own = [line.value for line in nannyml.lines(example, tmp_path, newest=ROWS, draws=0)]
    assert own == [line.value for line in nannyml.lines(example, tmp_path, draws=0)]
    assert own != [line.value for line in nannyml.lines(example, tmp_path, newest=200, draws=0)]


def test_the_command_prints_a_line_per_metric_and_chunk_and_the_largest_distances(tmp_path, monkeypatch, capsys):
    examples = [write_example(example, tmp_path) for example in EXAMPLES]
    monkeypatch.setattr(nannyml, "EXAMPLES", examples)
    monkeypatch.setattr("sys.argv", ["nannyml.py", str(tmp_path), "--newest", "300"])
    nannyml.main()
    printed = capsys.readouterr().out
    assert printed.count(" - ") == 12
    assert printed.count("from the published ones") == 6


def test_every_chunk_of_the_examples_has_a_published_number():
    assert {len(numbers) for example in EXAMPLES for numbers in example.published.values()} == {10}
