"""Every CUDA path on this machine's GPU, tests first, then figures; writes a page. ``make gpu``, at most ten minutes.

``python benchmarks/gpu.py [--device cuda:1] [--page docs/gpu.md] [--minutes 10]``. Without a GPU it says so and ends with exit
code 1. With ``--device cpu`` it rehearses: tests that need no GPU, small figures, and no page unless one is named.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.figures import on_device
from benchmarks.report import write_json

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "gpu.md"
#: Rows of the trainings, on a GPU and in a rehearsal.
_ROWS: Final = {"cuda": 400_000, "cpu": 6_000}
#: Shares of the time: the tests get what they need, the figures what is left.
_RESERVED_SECONDS: Final = 240.0
_PACKAGES: Final = ("torch", "lightning-fabric", "lightning", "numpy", "safetensors", "pyarrow")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one test."""

    name: str
    state: str
    message: str


def main() -> int:
    """The command line; 0 if every test passed and every figure was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--page", type=Path, help="page to write; default: docs/gpu.md, none in a rehearsal")
    parser.add_argument("--minutes", type=float, default=10.0, help="time for everything together")
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.stderr.write(f"gpu: this machine has no CUDA device (torch {torch.__version__}); nothing was run\n")
        return 1
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="modyn-gpu-") as work:
        tested = run_tests(options.device, Path(work), deadline - _RESERVED_SECONDS)
        figures, missing = run_figures(options.device, Path(work), deadline)
    page = options.page or (None if options.device == "cpu" else PAGE)
    if page is not None:
        page.write_text(page_of(options.device, tested, figures, missing))
        print(f"gpu: wrote {page}")
    failed = [outcome for outcome in tested if outcome.state in ("failed", "error")]
    print(f"gpu: {len(tested)} tests, {len(failed)} failed; {len(figures)} figures, {len(missing)} not measured")
    return 1 if failed or missing or not tested else 0


def run_tests(device: str, work: Path, deadline: float) -> list[Outcome]:
    """Run ``tests/gpu`` in a process of its own; a run that takes too long counts as failed."""
    report = work / "report.xml"
    # Not tests/conftest.py, which wants Postgres; and a warning of a driver is no failure here.
    options = ["--confcutdir=tests/gpu", f"--gpu={device}", "-W", "default", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", "tests/gpu"]
    # Before the first handle of cuBLAS in the process, whose results repeat only with it.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    try:
        subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as late:
        return [Outcome("tests/gpu", "failed", f"not done after {late.timeout:.0f} s")]
    return list(outcomes(report)) if report.exists() else [Outcome("tests/gpu", "failed", "pytest wrote no report")]


def outcomes(report: Path) -> Iterator[Outcome]:
    """Tests of a report of pytest."""
    for case in ElementTree.parse(report).iter("testcase"):
        verdict = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        state = {"failure": "failed", "error": "error", "skipped": "skipped"}[verdict.tag] if verdict is not None else "passed"
        message = "" if verdict is None else (verdict.get("message") or "").strip().splitlines()[:1]
        yield Outcome(f"{case.get('classname')}::{case.get('name')}", state, "".join(message))


def visible(device: str) -> dict[str, str]:
    """Environment in which ``cuda`` is the GPU that a device names by its number; empty for a device without one."""
    number = device.partition(":")[2]
    if not number:
        return {}
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": named[int(number)] if named else number}


def run_figures(device: str, work: Path, deadline: float) -> tuple[dict[str, Any], list[str]]:
    """Figures by id as JSON, and the programs that did not come to their end."""
    found: dict[str, Any] = {}
    missing: list[str] = []
    own = work / "train.json"
    write_json(own, list(on_device.figures(device, n=_ROWS[device.partition(":")[0]])))
    found |= json.loads(own.read_text())
    only = "F8" if device == "cpu" else "F8,F8b,F9"
    programs = {"throughput.py": ["--quick", "--only", only], "training.py": ["--quick", "--only", "overhead"]}
    for program, arguments in programs.items():
        path = work / f"{program}.json"
        command = [sys.executable, str(ROOT / "benchmarks" / program), *arguments, "--json", str(path)]
        try:
            left = max(1.0, deadline - time.monotonic())
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **visible(device)}
            ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=left)
        except subprocess.TimeoutExpired:
            missing.append(f"{program}: no time was left")
            continue
        if ended.returncode or not path.exists():
            missing.append(f"{program}: exit code {ended.returncode}")
            continue
        found |= json.loads(path.read_text())
    return found, missing


def page_of(device: str, tested: Sequence[Outcome], figures: Mapping[str, Any], missing: Sequence[str]) -> str:
    """The page: machine and versions, tests by file, figures."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in tested:
        counts.setdefault(outcome.name.partition("::")[0], {}).setdefault(outcome.state, 0)
        counts[outcome.name.partition("::")[0]][outcome.state] += 1
    states = ("passed", "failed", "error", "skipped")
    rows = [f"| {name} | " + " | ".join(str(each.get(state, 0)) for state in states) + " |" for name, each in counts.items()]
    faults = [f"- `{outcome.name}`: {outcome.message}" for outcome in tested if outcome.state != "passed"]
    lines = [
        "# On a GPU",
        "",
        f"Written by `make gpu` on {datetime.now(UTC):%Y-%m-%d}. [Training](training.md#devices): devices that a pipeline names.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in machine(device).items()),
        "",
        "## Tests",
        "",
        "| file | " + " | ".join(states) + " |",
        "|---|" + "---:|" * len(states),
        *rows,
        *(["", *faults] if faults else []),
        "",
        "## Figures",
        "",
        "Medians; `waiting` is the share of an epoch in which the host waited for data or began copies. Quick settings.",
        "",
        "| figure | value | smallest | largest | unit | goal |",
        "|---|---:|---:|---:|---|---:|",
        *(f"| {name} | {' | '.join(_cells(figure))} |" for name, figure in sorted(figures.items())),
        *(["", *(f"- not measured: {each}" for each in missing)] if missing else []),
    ]
    return "\n".join(lines) + "\n"


def machine(device: str) -> dict[str, str]:
    """Hardware and versions."""
    found = {"processor": _processor(), "cores": str(len(os.sched_getaffinity(0))), "Python": platform.python_version()}
    if device != "cpu":
        properties = torch.cuda.get_device_properties(device)
        found |= {"GPU": properties.name, "memory": f"{properties.total_memory / 2**30:.0f} GiB"}
        found |= {"CUDA": str(torch.version.cuda), "cuDNN": str(torch.backends.cudnn.version())}  # type: ignore[no-untyped-call]  # torch has no type for it
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except ModuleNotFoundError:  # one of two names
            continue
    return found


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[0] if names else platform.machine()


def _cells(figure: Mapping[str, Any]) -> list[str]:
    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, int | float) else ""

    return [
        *(shown(figure.get(name)) for name in ("value", "min", "max")),
        str(figure.get("unit", "")),
        shown(figure.get("goal")),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
