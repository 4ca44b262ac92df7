"""The benchmark of drift runs from end to end on little data and reports every figure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.drift import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak("benchmarks")
def test_the_command_writes_figures_with_their_five_fields(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks/drift.py"), "--quick", "--sizes", "60", "--widths", "3"]
    subprocess.run([*command, "--json", str(out)], check=True, capture_output=True, cwd=tmp_path)
    found = json.loads(out.read_text())
    assert {"ks", "ks.float32", "memory.60", "mmd.60.3", "mmd.60.3.given", "mmd.features.60.3", "load", "foreign"} <= set(found)
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in found.values())
    assert all(found[id]["min"] <= found[id]["value"] <= found[id]["max"] for id in ("ks", "mmd.60.3"))
    assert found["ks"]["goal"] == 1.8


def test_an_unknown_group_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["drift.py", "--only", "speed"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "no group speed" in capsys.readouterr().err
