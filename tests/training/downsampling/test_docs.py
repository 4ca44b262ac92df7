"""The policy that the documentation shows works as it stands."""

import re
import sys
from pathlib import Path

import pytest
import torch

from modyn_dagster.spec.learning.downsampling import DownsamplingSpec, PolicyName
from modyn_dagster.training import Task, train
from modyn_dagster.training.downsampling import POLICIES
from tests.training.table import Table, spec_of

PAGE = Path(__file__).parents[3] / "docs" / "downsampling.md"


def test_the_policy_of_the_page_trains_and_is_under_60_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separable: Table
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = [block for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "class Mistakes" in block]
    assert len(code) == 1
    assert len(code[0].splitlines()) < 60
    (tmp_path / "own_policies_of_docs.py").write_text(code[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = {"policy": {"factory": "own_policies_of_docs:mistakes"}, "options": {"share": 0.8}, "ratio": 0.2}
    for mode in ("batch_then_sample", "sample_then_batch"):
        spec = spec_of(downsampling=policy | {"mode": mode}, batch_size=50)
        found = train(spec, separable.data(), task=Task("class"), seed=0, threads=1, source="p")
        assert all(torch.isfinite(tensor).all() for tensor in found.state_dict.values())
    sys.modules.pop("own_policies_of_docs")


def test_the_page_names_every_policy_and_field() -> None:
    text = PAGE.read_text(encoding="utf-8")
    fields = set(DownsamplingSpec.model_fields) - {"policy"}
    assert [name for name in (*POLICIES, *fields) if f"`{name}`" not in text] == []
    assert set(PolicyName.__args__) == {"none", *POLICIES}  # type: ignore[attr-defined]  # a Literal has them
