"""``modyn-dagster pipeline notify``: a trial of the channels that a pipeline tells of events."""

from contextlib import closing

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import project_settings
from modyn_dagster.imports import loading


@click.command()
@click.argument("name")
def notify(name: str) -> None:
    """Send a test event to every channel of pipeline NAME now, and say which ones took it.

    The event has the kind `test`. Nothing is recorded, and Postgres is not needed. The exit code is 1 when a channel failed.
    """
    with loading():
        from modyn_dagster.pipeline.operate.notification.delivery import deliver_test
        from modyn_dagster.pipeline.platform import Platform

    failed = False
    with closing(Platform.open(project_settings())) as platform:
        for each in deliver_test(platform, name):
            failed |= each.error is not None
            say(f"{each.channel}: {f'ok ({each.target})' if each.error is None else each.error}")
    if failed:
        raise click.exceptions.Exit(1)
