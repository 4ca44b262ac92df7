"""MLServer with the settings of the example, in an environment of its own, asked by `curl`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from modyn_dagster.serving import load_folder, write_folder
from tests.serving.test_manifests import flights
from tests.serving.test_servers import curl, free_port

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = ROOT / "examples" / "serving" / "mlserver"
PINS: Final = "requirements.txt"
_START_SECONDS: Final = 180.0


def environment_of(folder: Path) -> Path:
    """Python of an environment with the example's requirements; everything else comes from the one that runs the test."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    named = re.findall(r"^([a-z][\w.-]*)==", (EXAMPLE / PINS).read_text(), re.MULTILINE)
    others = re.compile(rf"^(?!(?:{'|'.join(map(re.escape, named))})==).*$", re.MULTILINE | re.IGNORECASE)
    pins = folder / "constraints.txt"
    pins.write_text("\n".join(others.findall((ROOT / "constraints.txt").read_text())))
    subprocess.run([python, ROOT / ".ci" / "install.py", "-c", pins, "-r", EXAMPLE / PINS], check=True, cwd=ROOT)
    # After the installation, which would otherwise take what is there already for its own.
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    )
    Path(own.stdout.strip(), "outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return python


@contextmanager
def serving(python: Path, folder: Path) -> Iterator[str]:
    """Address of an MLServer with the settings of a folder, on free ports."""
    settings = json.loads((folder / "settings.json").read_text())
    settings |= {"http_port": free_port(), "grpc_port": free_port(), "metrics_port": free_port()}
    (folder / "settings.json").write_text(json.dumps(settings))
    with open(folder / "server.log", "wb") as log:
        command = [str(python.with_name("mlserver")), "start", str(folder)]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{settings['http_port']}"
        deadline = time.monotonic() + _START_SECONDS
        while subprocess.run(["curl", "-sf", f"{address}/v2/models/flights/ready"], capture_output=True, check=False).returncode:
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak("production")
def test_mlserver_serves_an_exported_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder)
    trained = flights()
    write_folder(trained.record(("late", "on time")), trained.model.state_dict, folder / "flights")
    columns = {"delay": [3.5, -1.0, 0.25], "distance": [900.0, -2.0, 0.5]}
    expected = load_folder(folder / "flights").predict({name: np.asarray(values) for name, values in columns.items()})
    inputs = [{"name": name, "datatype": "FP64", "shape": [3, 1], "data": values} for name, values in columns.items()]
    question = {"parameters": {"content_type": "pd"}, "inputs": inputs}
    with serving(environment_of(tmp_path / "environment"), folder) as address:
        status, answer = curl(f"{address}/v2/models/flights/infer", question)
        assert status == 200, answer
        assert answer["outputs"][0]["data"] == np.asarray(expected).tolist(), json.dumps(answer)
        rows = [list(row) for row in zip(*columns.values())]
        status, answer = curl(f"{address}/invocations", {"dataframe_split": {"columns": list(columns), "data": rows}})
        assert (status, answer["predictions"]) == (200, np.asarray(expected).tolist())
