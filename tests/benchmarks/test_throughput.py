import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.contenders import modyn, scan
from benchmarks.contenders.remote import Missing, Remote
from benchmarks.criteo import write_files
from benchmarks.dlrm import Trainer
from benchmarks.images import N_CLASSES, write_images
from benchmarks.plot import draw
from benchmarks.rows import ROW, batch_of, digest
from benchmarks.throughput import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("rows"), 1_000, seed=5, rows_per_file=300)


@pytest.fixture(scope="module")
def words(paths):
    return np.concatenate([np.fromfile(path, np.int32) for path in paths]).reshape(-1, 40)


@pytest.mark.parametrize("batch_size", [1, 7, 300, 450, 999, 1_000, 2_000])
def test_the_sequential_scan_delivers_every_row_once_across_files(paths, words, batch_size):
    batches = list(scan.sequential(paths, batch_size))
    expected = [batch_of(words[start : start + batch_size]) for start in range(0, 1_000, batch_size)]
    assert [digest(batch) for batch in batches] == [digest(batch) for batch in expected]


def test_the_per_sample_baseline_delivers_the_same_batches(paths):
    theirs = [digest(batch) for batch in modyn.batches(paths, 400)]
    assert theirs == [digest(batch) for batch in scan.sequential(paths, 400)]


def test_rows_taken_from_a_map_are_those_asked_for(paths, words, tmp_path):
    positions = np.random.default_rng(0).permutation(1_000)[:100]
    (batch,) = scan.taken(scan.join(paths, tmp_path / "joined"), positions)
    assert digest(batch) == digest(batch_of(words[positions]))
    rows = words.view(ROW)[:, 0][positions]
    assert np.array_equal(batch["num"].numpy(), rows["num"])
    assert np.array_equal(batch["cat"].numpy(), rows["cat"])
    assert np.array_equal(batch["label"].numpy(), rows["label"])


@pytest.mark.soak("benchmarks")
@pytest.mark.process
def test_a_library_that_is_not_installed_is_missing_with_its_reason(paths, tmp_path):
    with Remote("litdata", Path(sys.executable), tmp_path, paths) as remote, pytest.raises(Missing, match="'litdata'"):
        remote.ready()


def test_the_recommendation_model_learns(words):
    torch.manual_seed(0)
    trainer, batch = Trainer("cpu"), batch_of(words[:200])
    losses = [float(trainer.step(batch)) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_pictures_are_jpeg_files_of_about_ten_kilobytes_sorted_by_class(tmp_path):
    paths = write_images(tmp_path, 8, seed=3)
    assert [path.parent.name for path in paths] == [f"class_{i % N_CLASSES}" for i in range(8)]
    for path in paths:
        assert 7_000 < path.stat().st_size < 15_000
        with Image.open(path) as image:
            assert (image.format, image.size) == ("JPEG", (256, 192))
    assert [path.read_bytes() for path in write_images(tmp_path / "again", 8, seed=3)] == [path.read_bytes() for path in paths]


def test_the_plot_leaves_out_what_was_not_measured(tmp_path):
    bar = {"value": 1.2, "unit": "x", "min": 1.1, "max": 1.3, "goal": 0.98}
    empty = {"value": None, "unit": "x", "min": None, "max": None, "goal": 0.98}
    draw({"rows.scan": bar | {"value": 2e6, "min": 1e6, "max": 3e6}, "F8": bar, "F8b": empty}, tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as image:
        assert image.size[0] > 1_000


@pytest.mark.soak("benchmarks")
def test_the_command_writes_a_figure_with_its_five_fields(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks/throughput.py"), "--quick", "--only", "F1", "--rows", "70000"]
    subprocess.run([*command, "--json", str(out), "--work", str(tmp_path)], check=True, capture_output=True, cwd=tmp_path)
    found = json.loads(out.read_text())
    assert {"F1", "F1.one_thread", "F1.store", "load", "foreign"} <= set(found)
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in found.values())
    assert found["F1"]["goal"] == 4.0
    assert found["F1"]["min"] <= found["F1"]["value"] <= found["F1"]["max"]
    assert list(tmp_path.iterdir()) == [out]


def test_an_unknown_figure_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["throughput.py", "--only", "F99"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "no group F99" in capsys.readouterr().err
