"""The wheel and the source distribution of this tree, and environments of their own to install it into."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def versions() -> Mapping[str, Any]:
    """Names that `.ci/versions.py` defines."""
    with pytest.MonkeyPatch.context() as patch:
        # It imports the script next to it.
        patch.syspath_prepend(ROOT / ".ci")
        return runpy.run_path(str(ROOT / ".ci" / "versions.py"))


@dataclass(frozen=True)
class Distributions:
    """Files that one build made; the wheel was built from the source distribution."""

    source: Path
    wheel: Path


@pytest.fixture(scope="session")
def distributions(versions: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("distributions")
    sources = versions["tracked"](
        "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "fastpath", "modyn_dagster"
    )
    versions["copied"](sources, folder / "tree")
    versions["uv"]("build", "--quiet", "--python", sys.executable, "--out-dir", folder / "dist", folder / "tree")
    [source], [wheel] = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return Distributions(source, wheel)


@dataclass(frozen=True)
class BareEnvironment:
    """Environment on whose PATH nothing else is: no compiler, and no program of the system."""

    python: Path

    def run(self, *arguments: str | Path, cwd: Path, program: str = "python", **environment: str) -> str:
        """Run a program of the environment and return what it printed."""
        kept = {
            name: os.environ[name] for name in ("HOME", "TMPDIR", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ
        }
        kept |= {"PATH": str(self.python.parent), "OMP_NUM_THREADS": "1", **environment}
        command = [self.python.with_name(program), *arguments]
        done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def installed(versions: Mapping[str, Any], distributions: Distributions, tmp_path: Path) -> Callable[[str], BareEnvironment]:
    """Make an environment with the wheel and one of its extras; an empty name is none."""

    def install(extra: str) -> BareEnvironment:
        python = tmp_path / "env" / "bin" / "python"
        versions["uv"]("venv", "--quiet", "--python", sys.executable, tmp_path / "env")
        wheel = f"modyn-dagster{f'[{extra}]' if extra else ''} @ {distributions.wheel.as_uri()}"
        # The build of torch that the default lock has: for CPUs alone, where the index or a folder offers it.
        pin = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
        (tmp_path / "torch.txt").write_text(f"{pin}\n")
        versions["uv"]("pip", "install", "--quiet", "--python", python, "-c", tmp_path / "torch.txt", pin, wheel)
        return BareEnvironment(python)

    return install
