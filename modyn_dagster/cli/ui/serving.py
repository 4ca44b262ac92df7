"""Dagster's webserver and daemon and the MLflow server, for as long as a command runs.

A lock that ends with its process prevents a second instance. Ctrl-C, TERM and a closed terminal stop the services in order.
"""

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import click

from modyn_dagster.catalog.batches import has_batches
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.database.urls import service_environment
from modyn_dagster.cli.console import say
from modyn_dagster.cli.server import running_database
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Service, Services, stop_leftovers
from modyn_dagster.cli.ui.services import HOST, daemon, free_port, mlflow, webserver
from modyn_dagster.errors import AlreadyRunning
from modyn_dagster.imports import require
from modyn_dagster.private_files import make_home, open_to_others
from modyn_dagster.settings import Settings
from modyn_dagster.storage import atomic_write

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Turn the first of these signals into ``KeyboardInterrupt`` and ignore later ones, which would disturb the clean-up.

    Works as well for a process that a shell started in the background, with Ctrl-C ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for stopping in _STOPPING:
            # Not SIG_IGN: programs started during the clean-up would inherit it.
            signal.signal(stopping, lambda _number, _frame: None)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LOCK: Final = "ui.lock"
_NOTE: Final = "ui.json"


#: Publishes the URLs of the lock's holder, by name, to processes that find the lock taken.
Announce = Callable[[Mapping[str, str]], None]


@contextlib.contextmanager
def exclusive_lock(home: Path, command: str = "ui") -> Iterator[Announce]:
    """Hold the lock of a folder for a command; ``AlreadyRunning`` names the process and URLs that hold it.

    The operating system drops the lock with its process, so a killed holder blocks nobody; the note is read only while
    the lock is held.
    """
    make_home(home)
    with open(home / _LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(_holder(home / _NOTE), command) from None
        note = home / _NOTE
        _write_note(note, {})
        try:
            yield partial(_write_note, note)
        finally:
            note.unlink()


def _write_note(note: Path, urls: Mapping[str, str]) -> None:
    with atomic_write(note) as file:
        file.write(json.dumps({"process": os.getpid(), "urls": dict(urls)}).encode())


def _holder(note: Path) -> str:
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
    except FileNotFoundError:  # the holder has the lock, but has not written the note yet
        return "it is just starting"
    urls = ", ".join(f"{name} at {url}" for name, url in content["urls"].items())
    return f"process {content['process']}, {urls or 'still starting'}"


_START_SECONDS: Final = 120.0


def serve(settings: Settings, port: int, mlflow_port: int) -> None:
    """Run the servers of a project until one of them ends or a signal comes.

    Raises:
        AlreadyRunning: they run for this ``MODYN_HOME``.
        ServiceFailed: one has ended; the others are stopped.
        MissingPackage: Dagster or MLflow is not installed.
    """
    require("dagster_webserver", "Dagster's webserver")
    require("mlflow", "the MLflow server")
    location = CodeLocation.find(settings.project, os.environ.get("DAGSTER_HOME"))
    with interrupted_by_signals(), suppress(KeyboardInterrupt), exclusive_lock(settings.home) as announce:
        _run(settings, location, announce, port, mlflow_port)
    say("stopped")


def _run(settings: Settings, location: CodeLocation, announce: Announce, port: int, mlflow_port: int) -> None:
    logs = settings.home / "logs"
    if (warning := open_to_others(settings.home)) is not None:
        say(f"warning: {warning}", err=True)
    if leftovers := stop_leftovers(logs):
        say(f"ended {leftovers} processes that a killed `modyn-dagster ui` had left behind")
    say("starting Postgres, Dagster and MLflow ...")
    with running_database(settings):
        services = Services(logs, location.folder)
        try:
            first = free_port(port)
            urls = _start(settings, location, services, first, free_port(mlflow_port, avoid=[first]))
            announce(urls)
            for name, url in urls.items():
                click.echo(f"{name:<8} {url}")
            if not _has_batches(settings):
                say("No batch was ingested yet: see `modyn-dagster dataset import --help`, or run `make demo` first.")
            say("MLflow begins with its pages for chats: choose `Model training` at the top left, once per browser.")
            say("Ctrl-C stops them.")
            services.watch()
        finally:
            say("stopping ...")
            services.stop()


def _has_batches(settings: Settings) -> bool:
    engine = open_engine(settings)
    try:
        with transaction(engine) as conn:
            return has_batches(conn)
    finally:
        engine.dispose()


def _start(settings: Settings, location: CodeLocation, services: Services, port: int, mlflow_port: int) -> dict[str, str]:
    """Start all three; returns their URLs by name once they answer."""
    pages = {"Dagster": f"http://{HOST}:{port}", "MLflow": f"http://{HOST}:{mlflow_port}"}
    links = {"MODYN_DAGSTER_UI_URL": pages["Dagster"], "MODYN_MLFLOW_UI_URL": pages["MLflow"]}
    # Without the schema's owner, who is for this command, which upgrades.
    environment = service_environment(settings) | links
    artifacts = settings.home / "mlflow"
    started: Sequence[Service] = (
        webserver(location, environment, port),
        daemon(location, environment, port),
        mlflow(environment, mlflow_port, environment["MODYN_MLFLOW_URI"], artifacts),
    )
    for service in started:
        services.start(service)
    services.wait_until_answering(started, _START_SECONDS)
    return pages
