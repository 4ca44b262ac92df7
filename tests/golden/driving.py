"""A copy of the golden project on a database of its own, replayed, or run live as sensors and their runs would."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.database.databases import create_databases, upgrade
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.decide.measure_ahead import measure_ahead
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage, finish_live_run, model_stage, training_set_stage
from modyn_dagster.settings import Settings
from tests.golden.data import DAYS, write_batches

PROJECT: Final = Path(__file__).parent / "project"
#: Days that arrive together while pipelines are live: many at once, one alone, two.
ARRIVALS: Final = (range(4), range(4, 5), range(5, 7), range(7, DAYS))


@dataclass(frozen=True)
class Site:
    """A golden project with its files and its database."""

    platform: Platform

    def deliver(self, days: range) -> None:
        """Let the batches of these days arrive, of every dataset."""
        platform = self.platform
        write_batches(platform.settings.project / "data", days)
        for name, spec in platform.project.datasets.items():
            summary = import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
            if summary.failed:
                raise RuntimeError(f"{name}: {summary.failed}")

    def replay(self, pipeline: str) -> None:
        """Replay a pipeline over everything there is."""
        view = self.platform.view(self.platform.pipeline(pipeline).dataset)
        keys = [batch.partition_key for batch in view.batches]
        for _ in replay(self.platform, ReplayRequest(pipeline, keys, "golden")):
            pass

    def live_until_idle(self, pipeline: str) -> None:
        """Tick, train and measure until nothing is left to do, then judge every model."""
        platform = self.platform
        while (now := tick(platform, pipeline, lambda *_: Attempt.NONE)).train is not None or now.measure is not None:
            if now.train is None:
                for _ in measure_ahead(platform, pipeline):
                    pass
                continue
            context = claim_context(platform, now.train, "golden")
            model_stage(training_set_stage(context).context)
        with platform.transaction() as conn:
            trained = list_triggers(conn, now.run.id, ["trained"])
        for trigger in trained:
            context = context_of(platform, pipeline, trigger.partition_key)
            evaluation_stage(replace(context, view=platform.view(context.spec.dataset)), finished=False)

    def finish(self, pipeline: str) -> None:
        """End the live run of a pipeline, as ``pipeline finish`` does."""
        with self.platform.transaction() as conn:
            [run] = [run for run in runs.list_runs(conn, pipeline) if run.mode == "live"]
        for _ in finish_live_run(self.platform, run):
            pass


def replayed(site: Site, pipelines: Sequence[str]) -> None:
    """Deliver everything, then replay one pipeline after the other."""
    site.deliver(range(DAYS))
    for pipeline in pipelines:
        site.replay(pipeline)


def lived(site: Site, pipelines: Sequence[str]) -> None:
    """Deliver bit by bit, with every pipeline at work after each delivery."""
    for days in ARRIVALS:
        site.deliver(days)
        for pipeline in pipelines:
            site.live_until_idle(pipeline)
    for pipeline in pipelines:
        site.finish(pipeline)


@contextmanager
def site_in(folder: Path, postgres_url: sa.URL, prefix: str) -> Iterator[Site]:
    """A fresh site below a folder, in databases whose names begin with a prefix.

    Replays and live runs need a site each: where they share one, the second takes over what the first computed.
    """
    project, home = folder / f"{prefix}project", folder / f"{prefix}home"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    url = postgres_url.render_as_string(hide_password=False)
    settings = Settings(project, home, postgres_url=url, database_prefix=prefix)
    create_databases(settings)
    engine = open_engine(settings)
    upgrade(engine)
    engine.dispose()
    platform = Platform.open(settings)
    try:
        yield Site(platform)
    finally:
        platform.close()


def do_not_wait_in_postgres(url: sa.URL) -> None:
    """Let a server answer before anything is on the disk: what it holds is thrown away."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text("alter system set fsync = off"))
        connection.execute(sa.text("select pg_reload_conf()"))
    engine.dispose()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder that the account of a Postgres server may enter."""
    folder = Path(tempfile.mkdtemp(prefix="modyn-golden-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
