"""`make gpu` without a GPU: it says so and fails; rehearsed on a processor, its tests and trainings come to their end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.figures import on_device

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.gpu.test_copies" name="test_one"/>
<testcase classname="tests.gpu.test_copies" name="test_two"><failure message="it waits&#10;more">where</failure></testcase>
<testcase classname="tests.gpu.test_choices" name="test_three"><skipped message="a rehearsal"/></testcase>
</testsuite></testsuites>"""


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | hidden, capture_output=True, text=True, check=False
    )


def test_every_test_of_a_report_has_its_outcome(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    found = list(gpu.outcomes(tmp_path / "report.xml"))
    assert [(outcome.state, outcome.message) for outcome in found] == [
        ("passed", ""),
        ("failed", "it waits"),
        ("skipped", "a rehearsal"),
    ]


def test_the_page_names_machine_tests_faults_and_figures() -> None:
    tested = [gpu.Outcome("tests.gpu.test_copies::test_two", "failed", "it waits")]
    figures = {"F8.cuda": {"value": 1.25, "min": 1.0, "max": 1.5, "unit": "x", "goal": 0.98}}
    page = gpu.page_of("cpu", tested, figures, ["training.py: no time was left"])
    assert "| tests.gpu.test_copies | 0 | 1 | 0 | 0 |" in page
    assert "- `tests.gpu.test_copies::test_two`: it waits" in page
    assert "| F8.cuda | 1.25 | 1 | 1.5 | x | 0.98 |" in page
    assert "- not measured: training.py: no time was left" in page
    assert re.search(r"^\| torch \| \d", page, re.MULTILINE)


@pytest.mark.soak("distributed")
def test_trainings_are_measured_with_the_share_of_time_spent_waiting() -> None:
    found = {figure.id: figure for figure in on_device.figures("cpu", n=5000, epochs=2)}
    for setup in ("mlp", "mlp_bf16", "mlp_by_loss"):
        for kind in ("memory", "streamed"):
            rate, share = (found[f"train.{setup}.{kind}{suffix}"].spread for suffix in ("", ".waiting"))
            assert rate is not None
            assert share is not None
            assert rate.value > 0
            assert 0 <= share.value < 1


@pytest.mark.soak("distributed")
def test_without_a_gpu_the_command_and_the_tests_say_so_and_fail() -> None:
    command = ran("benchmarks/gpu.py")
    assert command.returncode == 1
    assert re.fullmatch(r"gpu: this machine has no CUDA device \(torch .+\); nothing was run\n", command.stderr)
    tests = ran("-m", "pytest", "--confcutdir=tests/gpu", "-p", "no:cacheprovider", "tests/gpu")
    assert tests.returncode == 1
    assert "this machine has no CUDA device" in tests.stdout + tests.stderr


@pytest.mark.soak("distributed")
def test_its_tests_come_to_their_end_on_a_processor() -> None:
    rehearsed = ran(
        "-m", "pytest", "--confcutdir=tests/gpu", "--gpu=cpu", "-W", "default", "-q", "-p", "no:cacheprovider", "tests/gpu"
    )
    assert rehearsed.returncode == 0, rehearsed.stdout[-3000:]
    assert " passed" in rehearsed.stdout


@pytest.mark.soak("distributed")
def test_no_suite_collects_them() -> None:
    # As a suite does, by the folder above; named itself, the folder ends the session of a machine without a GPU.
    others = [f"--ignore={path}" for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "gpu"]
    collected = ran("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *others, "tests")
    assert "tests/test_devices.py" in collected.stdout
    assert "tests/gpu" not in collected.stdout


@pytest.mark.parametrize(
    ("device", "named", "seen"), [("cuda:1", "", "1"), ("cuda:1", "4,7", "7"), ("cuda", "4,7", None), ("cpu", "", None)]
)
def test_programs_that_know_one_gpu_see_the_named_one(
    monkeypatch: pytest.MonkeyPatch, device: str, named: str, seen: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert gpu.visible(device).get("CUDA_VISIBLE_DEVICES") == seen
