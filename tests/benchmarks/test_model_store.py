"""The benchmark of the model store: a group runs from end to end and reports its figures; its parts do what they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.figures.choosing import TRACE, updated
from benchmarks.figures.storing import large_state
from benchmarks.model_flows import baseline_load, baseline_save
from benchmarks.model_store import main

ROOT = Path(__file__).resolve().parents[2]


def test_the_command_writes_figures_with_their_five_fields(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks/model_store.py"), "--quick", "--only", "adaptive", "--threads", "1"]
    subprocess.run([*command, "--json", str(out)], check=True, capture_output=True, cwd=tmp_path)
    found = json.loads(out.read_text())
    assert {"G9.hindsight", "G9.single"} <= set(found)
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in found.values())
    assert found["G9.hindsight"]["goal"] == 1.05


def test_an_unknown_group_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["model_store.py", "--only", "speed"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "no group speed" in capsys.readouterr().err


def test_the_trace_has_forty_saves_of_three_sizes_and_prices():
    trace = json.loads(TRACE.read_text())
    assert len(trace["saves"]) == 40
    assert len({save["parameters"] for save in trace["saves"]}) == 3
    assert set(trace["prices"]) == {"store", "save", "recover", "recoveries"}
    base = large_state(3 << 20, seed=0)
    changed = [
        sum(not torch.equal(base[name], t) for name, t in updated(base, kind, 0.1, 1).items()) for kind in ("full", "partial")
    ]
    assert changed == [3, 1]


def test_the_baseline_notices_damage(tmp_path):
    path = tmp_path / "b.pt"
    baseline_save({"a": torch.ones(1000)}, path)
    baseline_load(path)
    content = path.read_bytes()
    place = content.index(torch.ones(8).numpy().tobytes())
    path.write_bytes(content[: place + 3] + b"\1" + content[place + 4 :])
    with pytest.raises(RuntimeError, match=r"a changed|corrupt|checksum"):
        baseline_load(path)
