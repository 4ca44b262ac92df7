"""The page of an asset with many partitions in Chromium, against a Dagster page without any, from one webserver."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

from benchmarks.figures.replaying import ROOT, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Services
from modyn_dagster.cli.ui.services import HOST, free_port, webserver
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

_ROWS: Final = 20
_VISITS: Final = 5
_START_SECONDS: Final = 180.0
#: Seconds without an answer after which a page is complete; Dagster asks again only later.
_QUIET: Final = 1.5
_TIMEOUT: Final = 60.0
#: A page of Dagster that shows no asset and no run.
_EMPTY: Final = "/deployment/config"
#: Text in the metadata of a materialization.
_OF_THE_LATEST: Final = "Row count"


def asset_page(work: Path, batches: int, machine: Machine) -> Iterator[Figure]:
    """D3.page: seconds until the page of the samples has all its answers, less those of an empty page."""
    project = work / "page"
    write_project(project, batches, _ROWS)
    for name in ("workspace.yaml", "dagster.yaml"):
        shutil.copy(ROOT / name, project)
    settings = Settings(project, work / "page-home")
    os.environ["DAGSTER_HOME"] = str(project)
    services = Services(work / "page-logs", project)
    with running_database(settings):
        with closing(Platform.open(settings)) as platform, dagster_instance(settings) as instance:
            [(name, spec)] = platform.project.datasets.items()
            import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
            announce_batches(instance, platform, name)
        port = free_port(12_000)
        environment = {**os.environ, **child_environment(settings), "DAGSTER_HOME": str(project)}
        service = webserver(CodeLocation(project, project), environment, port)
        try:
            services.start(service)
            services.wait_until_answering([service], _START_SECONDS)
            pages = ("", _EMPTY), (_OF_THE_LATEST, f"/assets/{name}/samples")
            empty, asset = _visits(f"http://{HOST}:{port}", *pages, machine)
        finally:
            services.stop()
    above = [seconds - least for seconds, least in zip(asset, empty, strict=True)]
    what = f"asset page with {batches:,} partitions, beyond an empty page of Dagster"
    yield Figure("D3.page", what, Spread.of(above), "s", 2.0, at_most=True)
    yield Figure("D3.page.empty", "the empty page", Spread.of(empty), "s")


def _visits(url: str, empty: tuple[str, str], asset: tuple[str, str], machine: Machine) -> tuple[list[float], list[float]]:
    """Seconds of each visit of two pages, in turns; the first visit of each fills the browser's cache and is not counted.

    A page is the text that it must show at the end, and its path.
    """
    seconds: tuple[list[float], list[float]] = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        for visit in range(_VISITS + 1):
            machine.sample()
            for (text, path), found in zip((empty, asset), seconds, strict=True):
                took = _visit(page, url + path, text)
                if visit:
                    found.append(took)
        browser.close()
    return seconds


def _visit(page: Page, address: str, text: str) -> float:
    """Seconds until the last answer of a page, whose text is then there. Raises ``RuntimeError``."""
    last = begin = time.perf_counter()
    waiting = 0

    def sent(_: object) -> None:
        nonlocal waiting
        waiting += 1

    def answered(_: object) -> None:
        nonlocal last, waiting
        last, waiting = time.perf_counter(), waiting - 1

    for event, listener in (("request", sent), ("requestfinished", answered), ("requestfailed", answered)):
        page.on(event, listener)  # type: ignore[call-overload]  # one overload for each event
    try:
        page.goto(address, wait_until="commit")
        while waiting > 0 or time.perf_counter() - last < _QUIET:
            page.wait_for_timeout(20)
            if time.perf_counter() - begin > _TIMEOUT:
                raise RuntimeError(f"{address} still waits for {waiting} answers after {_TIMEOUT:.0f} s")
    finally:
        for event, listener in (("request", sent), ("requestfinished", answered), ("requestfailed", answered)):
            page.remove_listener(event, listener)
    if text not in page.inner_text("body"):
        raise RuntimeError(f"{address} is complete without the text {text!r}")
    return last - begin
