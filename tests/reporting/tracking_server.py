"""MLflow's server in a process of its own on 127.0.0.1."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Other tests may keep the processor meanwhile.
_START_SECONDS: Final = 300.0


@contextmanager
def tracking_server(database: str, folder: Path) -> Iterator[str]:
    """Address of a server on a database, which has its log and artifacts in a folder and ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--artifacts-destination", str(folder / "served")]
    environment = {"MLFLOW_BACKEND_STORE_URI": database, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options],
            env={**os.environ, **environment, "MLFLOW_DISABLE_TELEMETRY": "true"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
