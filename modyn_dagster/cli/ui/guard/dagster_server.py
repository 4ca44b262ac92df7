"""Dagster's webserver and our reports behind the guard, as a program: ``python -m modyn_dagster.cli.ui.guard.dagster_server``.

It runs Dagster's own command, which reads options, instance and workspace, and serves the application in its place. Dagster's
command is told a host that cannot exist. Should a version of Dagster serve the application itself, it finds no address to listen
on, and the program ends instead of opening an unguarded port.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any, Final

import click

from modyn_dagster.cli.ui.guard.judgement import DAGSTER
from modyn_dagster.cli.ui.guard.middleware import Guard
from modyn_dagster.cli.ui.guard.reports import Reports
from modyn_dagster.cli.ui.guard.rules import Rules
from modyn_dagster.settings import Settings

_NOWHERE: Final = "guarded.invalid"  # RFC 2606: never resolved


@contextlib.asynccontextmanager
async def _lifespan(_app: object) -> AsyncIterator[None]:
    # uvicorn cancels it when a signal ends the server; that is no error.
    with contextlib.suppress(asyncio.CancelledError):
        yield


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--host", "-h", "address", default="127.0.0.1", help="Address to listen on.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(address: str, arguments: tuple[str, ...]) -> None:
    """Serve Dagster's pages; ``arguments`` are options of ``dagster-webserver``."""
    import uvicorn
    from dagster_webserver import cli
    from dagster_webserver.app import create_app_from_workspace_process_context

    rules = Rules.from_environment(os.environ, address)

    def serve(
        workspace_process_context: Any,
        host: str | None,  # noqa: ARG001 - nowhere, see above
        port: int | None,
        path_prefix: str,
        log_level: str,
        live_data_poll_rate: int | None = None,
    ) -> None:
        app = create_app_from_workspace_process_context(
            workspace_process_context, path_prefix, live_data_poll_rate, lifespan=_lifespan
        )
        pages = Reports(app, Settings.from_environment().reports_folder)
        uvicorn.run(Guard(pages, rules, DAGSTER), host=address, port=port or cli.DEFAULT_WEBSERVER_PORT, log_level=log_level)

    cli.host_dagster_ui_with_workspace_process_context = serve
    read_only = ["--read-only"] if rules.read_only else []
    cli.dagster_webserver.main(
        [*arguments, "--host", _NOWHERE, *read_only], "dagster-webserver", auto_envvar_prefix="DAGSTER_WEBSERVER"
    )


if __name__ == "__main__":
    main()
