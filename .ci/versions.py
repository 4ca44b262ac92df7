"""Run tests from a wheel, on each supported Python, with the newest and the oldest dependencies that setup.py allows.

Usage: .venv/bin/python .ci/versions.py [--quick] [COMBINATION...]
       .venv/bin/python .ci/versions.py --of-commit HASH

A combination is a Python and a set of dependencies, such as ``3.12-oldest``; a Python alone means both sets. Without any, all are
tried, and a Python that is not on this machine is named and left out; one that was asked for must be there. Wheels and
environments are kept in ``.versions``.
"""

import argparse
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from install import UV, requirements_of, uv_settings

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".versions"
PYTHONS = ("3.11", "3.12", "3.13")
#: Sets of dependencies, and how uv chooses them.
RESOLUTIONS = {"newest": "highest", "oldest": "lowest-direct"}
COMBINATIONS = tuple(f"{python}-{dependencies}" for python in PYTHONS for dependencies in RESOLUTIONS)
#: Newest are the releases of this day, so that the same commit is tested with the same ones. AS_OF= in the environment: today's.
AS_OF = "2026-11-28"
#: Tests need these, and users do not: they have the versions of constraints.txt.
TOOLS = frozenset({"hypothesis", "jsonschema", "pytest", "pytest-xdist"})
#: Recorded decisions and training sets of a few pipelines; they start a database, so the fast suite has none of them.
GOLDEN = "tests/golden/test_golden.py"
#: Folders of the fast suite that ``--quick`` leaves out; no run has those about the files of the repository.
OF_THE_TREE = ("tests/project", "tests/house", "tests/benchmarks", "tests/gpu")
QUICK = ("tests/fastpath", "tests/selection", "tests/spec", "tests/values", "tests/triggering")


class Failure(Exception):
    """Step of a combination that failed, in words."""


def main(arguments: list[str]) -> int:
    """Try combinations one after the other, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make test-versions", description="Tests from a wheel on several Pythons.")
    parser.add_argument("combinations", nargs="*", metavar="COMBINATION", help=f"of {', '.join(COMBINATIONS)}, or a Python")
    parser.add_argument("--of-commit", metavar="HASH", help="print the combination that CI runs with a commit")
    parser.add_argument("--quick", action="store_true", help="only the tests that fit into eight minutes on two cores")
    given = parser.parse_args(arguments)
    if given.of_commit:
        print(combination_of_commit(given.of_commit))
        return 0
    try:
        chosen = combinations(given.combinations)
        results = [tried(each, quick=given.quick) for each in chosen]
    except Failure as failure:
        print(f"test-versions: {failure}", file=sys.stderr)
        return 2
    missing = [each for each, result in zip(chosen, results) if result is None]
    failed = [each for each, result in zip(chosen, results) if result is False]
    for combination in missing:
        python = combination.partition("-")[0]
        print(f"test-versions: {combination} did not run: no Python {python} that starts was found", file=sys.stderr)
    if missing:
        print("test-versions: `pyenv install 3.12`, Debian's python3.12 with -venv, or a python3.12 on PATH", file=sys.stderr)
    if failed:
        print(f"test-versions: failed: {', '.join(failed)}", file=sys.stderr)
    ran = len(chosen) - len(missing)
    return 1 if failed or ran == 0 or (missing and given.combinations) else 0


def combinations(names: list[str]) -> list[str]:
    """Combinations by their names or by that of a Python; all without names. ``Failure`` for a name of neither."""
    found = [each for name in names for each in COMBINATIONS if name in {each, each.partition("-")[0]}]
    if unknown := [name for name in names if name not in {*COMBINATIONS, *PYTHONS}]:
        raise Failure(f"no combination {', '.join(unknown)}; there are {', '.join(COMBINATIONS)}")
    return list(dict.fromkeys(found)) or list(COMBINATIONS)


def combination_of_commit(commit: str) -> str:
    """The combination that CI runs with a commit: by the first half of its hash, as the end of it chooses the soak part."""
    return COMBINATIONS[int(commit[: len(commit) // 2], 16) % len(COMBINATIONS)]


def tried(combination: str, *, quick: bool) -> bool | None:
    """True if the tests passed, False if a step failed, None without such a Python."""
    python, _, dependencies = combination.partition("-")
    interpreter = interpreter_of(python)
    if interpreter is None:
        return None
    started = time.monotonic()
    try:
        wheel = built_wheel(interpreter)
        environment = installed(interpreter, wheel, FOLDER / combination, dependencies)
        seconds = time.monotonic() - started
        print(f"test-versions: {combination}: {described(environment)}; wheel and environment in {seconds:.0f} s", flush=True)
        # Old releases warn of what came after them; everywhere else a warning is an error.
        warnings = ["-W", "default"] if dependencies == "oldest" else []
        test(environment, FOLDER / combination / "tree", warnings, quick=quick)
    except (Failure, subprocess.CalledProcessError) as failure:
        print(f"test-versions: {combination}: {failure}", file=sys.stderr)
        return False
    print(f"test-versions: {combination}: passed in {time.monotonic() - started:.0f} s in all", flush=True)
    return True


def interpreter_of(python: str) -> Path | None:
    """A Python of a version that starts: on PATH, or one of pyenv's, whose commands on PATH start only the chosen versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    newest = sorted(pyenv.glob(f"{python}.*"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])
    on_path = shutil.which(f"python{python}")
    candidates = ([Path(on_path)] if on_path else []) + [path / "bin" / f"python{python}" for path in reversed(newest)]
    question = "import sys, sysconfig; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        try:
            answer = subprocess.run([candidate, "-c", question], capture_output=True, text=True, check=False).stdout.split()
        except OSError:
            continue
        if answer[1:] == [python]:
            return Path(answer[0])
    return None


def built_wheel(interpreter: Path) -> Path:
    """The wheel of this tree for a Python, built in a copy of it unless there is one of the same sources."""
    sources = tracked("setup.py", "pyproject.toml", "README.md", "LICENSE", "fastpath", "modyn_dagster")
    digest = hashlib.sha256(str(interpreter).encode())
    for source in sources:
        digest.update(source.encode() + b"\0" + (ROOT / source).read_bytes())
    folder = FOLDER / "wheels" / digest.hexdigest()[:16]
    if not list(folder.glob("*.whl")):
        # Those of earlier sources are of no use any more.
        tag = f"cp{interpreter_tag(interpreter)}"
        for old in (FOLDER / "wheels").glob(f"*/*-{tag}-*.whl"):
            shutil.rmtree(old.parent)
        source = FOLDER / "wheels" / "source"
        copied(sources, source)
        uv("build", "--quiet", "--wheel", "--python", interpreter, "--out-dir", folder, source)
        shutil.rmtree(source)
    return next(folder.glob("*.whl"))


def interpreter_tag(interpreter: Path) -> str:
    """Version of a Python as in the names of its wheels: ``312``."""
    question = "import sys; print('%d%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", question], capture_output=True, text=True, check=True).stdout.strip()


def installed(interpreter: Path, wheel: Path, folder: Path, dependencies: str) -> Path:
    """The Python of an environment with a wheel and its dependencies; an environment with the same ones is kept."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        declared = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    tools = "".join(f"{name}=={pins[name]}\n" for name in sorted(TOOLS))
    options = ["--resolution", RESOLUTIONS[dependencies]]
    as_of = os.environ.get("AS_OF", AS_OF)
    options += ["--exclude-newer", as_of] if as_of else []
    # Releases too old to have a wheel for this Python are allowed, and cannot be installed. One package never has any.
    options += ["--only-binary", ":all:", "--no-binary", "apricot-select"] if dependencies == "oldest" else []
    requirements = "".join(f"{line}\n" for line in requirements_of({"core", "test"}, declared))
    wanted = json.dumps([str(interpreter), options, requirements, tools])
    python, stamp = folder / "env" / "bin" / "python", folder / "installed.json"
    if not (stamp.is_file() and stamp.read_text() == wanted and python.exists()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "requirements.txt").write_text(requirements)
        (folder / "tools.txt").write_text(tools)
        uv("venv", "--quiet", "--python", interpreter, folder / "env")
        files = ["-r", folder / "requirements.txt", "-c", folder / "tools.txt"]
        uv("pip", "install", "--quiet", "--python", python, *options, *files)
        stamp.write_text(wanted)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--reinstall-package", "modyn-dagster", wheel)
    return python


def described(python: Path) -> str:
    """Versions of the packages that matter most, as installed in an environment."""
    names = ("numpy", "pandas", "torch", "scipy", "pyarrow", "dagster", "mlflow", "river")
    question = f"import platform, importlib.metadata as m; print(platform.python_version(), *[m.version(n) for n in {names}])"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True).stdout.split()
    return ", ".join(f"{name} {version}" for name, version in zip(("Python", *names), answer, strict=True))


def test(python: Path, tree: Path, options: list[str], *, quick: bool) -> None:
    """Run tests in a copy of the tree without the packages, which come from the wheel. ``Failure`` if one fails."""
    copied([file for file in tracked() if not file.startswith(("modyn_dagster/", "fastpath/"))], tree)
    # pyarrow 17 installs a package of this name, which comes before a folder that is none.
    (tree / "benchmarks" / "__init__.py").touch()
    if quick:
        folders = [*QUICK, "tests/evaluation", "tests/model_store"]
    else:
        folders = sorted(f"tests/{path.name}" for path in (tree / "tests").iterdir() if path.is_dir())
        folders = [folder for folder in folders if folder not in OF_THE_TREE]
    source = "import modyn_dagster, sys; sys.exit(modyn_dagster.__file__.startswith(sys.prefix) is False)"
    if subprocess.run([python, "-c", source], cwd=tree, check=False).returncode:
        raise Failure("modyn_dagster is not imported from the wheel")
    processes = os.environ.get("TEST_PROCESSES", "2")
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes, "--dist", "loadgroup", *options]
    suites = (["--fast", *folders], [GOLDEN])
    if failed := [suite for suite in suites if subprocess.run([*pytest, *suite], cwd=tree, check=False).returncode]:
        raise Failure(f"tests failed: {'; '.join(' '.join(suite) for suite in failed)}")


def tracked(*paths: str) -> list[str]:
    """Files of the tree that git knows, or would ask about: no build products."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(file for file in set(listed) if file and (ROOT / file).is_file())


def copied(files: list[str], target: Path) -> None:
    """Make a folder that holds these files of the tree and nothing else."""
    shutil.rmtree(target, ignore_errors=True)
    for file in files:
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, copy)


def uv(*arguments: str | Path) -> None:
    """Call uv with pip's settings. ``Failure`` if it cannot, or is not there."""
    if not UV.exists():
        raise Failure(f"{UV} is not there: `make set-up` installs it where the package index has it")
    environment = os.environ | uv_settings() | {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    if subprocess.run([UV, *arguments], check=False, env=environment).returncode:
        raise Failure(f"uv {' '.join(map(str, arguments[:2]))} failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
