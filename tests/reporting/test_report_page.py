"""The page as text: what is inside, and that nothing is missing or fetched."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modyn_dagster.evaluation import currently_active, currently_trained
from modyn_dagster.reporting.page.data import ReportData
from modyn_dagster.reporting.page.document import report_html, write_report
from tests.reporting.made_up import a_report


def data_of(page: str) -> dict[str, Any]:
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_plotly_is_inside_once_and_nothing_is_fetched() -> None:
    page = report_html(a_report([3, 2], 4))
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=[\"'](?!data:)", page)
    assert "{{" not in re.sub(r"(?s)<script[^>]*>.*?</script>", "", page)


def test_matrices_and_composites_come_through() -> None:
    report = a_report([5, 0, 1], 6)
    found = data_of(report_html(report))
    for shown, record in zip(found["pipelines"], report.pipelines, strict=True):
        for metric in report.metrics:
            values = np.frombuffer(base64.b64decode(shown["matrices"][metric]), dtype="<f4")
            np.testing.assert_array_equal(values.reshape(record.matrices[metric].shape), record.matrices[metric].astype("<f4"))
        assert shown["active"] == currently_active(record.train_ends, report.anchors).tolist()
        assert shown["trained"] == currently_trained(record.train_ends, report.anchors).tolist()
    assert [metric["lower"] for metric in found["metrics"]] == [False, True]
    assert found["starts"][0] == -1262304000000


def test_undefined_cells_are_no_numbers_anywhere() -> None:
    report = a_report([2], 3)
    holes = {metric: np.full((2, 3), np.nan) for metric in report.metrics}
    emptied = replace(report, pipelines=(replace(report.pipelines[0], matrices=holes),))
    found = data_of(report_html(emptied))
    assert found["pipelines"][0]["summaries"]["accuracy"] == {"retention": None, "forgetting": None, "regret": None}


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<!--<script>", "{{DATA}}", "a & b \u2028 \u00e9"])
def test_no_name_can_break_the_page(name: str) -> None:
    report = a_report([1], 2)
    page = report_html(replace(report, title=name, pipelines=(replace(report.pipelines[0], label=name),)))
    assert data_of(page)["pipelines"][0]["label"] == name
    assert name not in page or "<" not in name


def test_equal_data_are_equal_bytes(tmp_path: Any) -> None:
    for name in ("one", "other"):
        write_report(a_report([3, 3], 5, seeds=2), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_records_that_do_not_fit_together_are_refused() -> None:
    report = a_report([2, 2], 3)
    with pytest.raises(ValueError, match=r"labels must not repeat: pipeline_00, pipeline_00"):
        replace(report, pipelines=(report.pipelines[0],) * 2)
    with pytest.raises(
        ValueError, match=r"pipeline_00: the matrix of f1 has shape None, expected \(2, 3\), models times intervals"
    ):
        ReportData("t", report.starts, report.ends, report.anchors, ("f1",), report.pipelines)
