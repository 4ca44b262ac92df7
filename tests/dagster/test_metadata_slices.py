"""The tables of slices on an evaluation's page."""

from modyn_dagster.assets.metadata.evaluations import slices_metadata
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from tests.reporting.story import year


def a_cell(subset: str, n: int, value: float | None, metric: str = "accuracy", low: float | None = None) -> EvaluationRow:
    high = None if low is None else 0.95
    reason = "one class only" if value is None else None
    return EvaluationRow(1, 0, year(n), year(n + 1), metric, 100 + n, value, reason, False, subset=subset, low=low, high=high)


CELLS = [
    a_cell("school=MIT", 0, 0.5, low=0.25),
    a_cell("school=MIT", 1, 0.75),
    a_cell("school=MIT", 1, None, "roc_auc"),
    a_cell("label=a|b", 1, 0.125),
]


def test_a_slice_has_a_line_with_its_means_and_one_per_interval() -> None:
    tables = {name: table.value.splitlines() for name, table in slices_metadata(CELLS, ["accuracy", "roc_auc"]).items()}
    assert tables["slices"][0] == "| slice | intervals | samples | accuracy | roc_auc |"
    assert tables["slices"][2:4] == ["| label=a\\|b | 1 | 101 | 0.1250 | – |", "| school=MIT | 2 | 201 | 0.6250 | – |"]
    assert tables["slice_scores"][0] == "| interval | slice | samples | accuracy | roc_auc |"
    assert tables["slice_scores"][2:5] == [
        "| 1900-01-01 – 1901-01-01 | school=MIT | 100 | 0.5000 (0.250 to 0.950) | – |",
        "| 1901-01-01 – 1902-01-01 | label=a\\|b | 101 | 0.1250 | – |",
        "| 1901-01-01 – 1902-01-01 | school=MIT | 101 | 0.7500 | one class only |",
    ]


def test_long_tables_are_cut_and_say_so() -> None:
    cells = [a_cell(f"school={number:04d}", 1 + number % 2, 0.5) for number in range(400)]
    means, lines = (table.value.splitlines() for table in slices_metadata(cells, ["accuracy"]).values())
    assert (len(means), len(lines)) == (304, 304)
    assert means[-1].endswith("; 300 of 400 slices")
    assert lines[-1].endswith("; 300 of 400 lines, the newest")
    assert "school=0399" in lines[-3]


def test_without_slices_there_are_no_tables() -> None:
    assert slices_metadata([], ["accuracy"]) == {}
