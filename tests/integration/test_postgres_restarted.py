"""Postgres killed and started again under Dagster's running webserver and daemon."""

import os
import signal
from pathlib import Path

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import amount, batch_text, drop

SENSORS = ("new_data__tiny", "triggering__by_amount")


def test_sensors_go_on_by_themselves_once_postgres_is_back(own_server: RunningServer, tmp_path: Path) -> None:
    with deployed(own_server, tmp_path, [amount(every=40)]) as deployment, served(deployment) as servers:

        def trained(count: int) -> bool:
            triggers = deployment.triggers("by_amount", "live")
            return [row.state for row in triggers] == ["trained"] * count

        for sensor in SENSORS:
            servers.graphql.start_sensor(sensor)
        drop(deployment.project, "day_00", batch_text(0))
        wait_for("the first model", lambda: trained(1), 120, lambda: servers.why(*SENSORS))

        os.kill(int(own_server.embedded.status().pid or 0), signal.SIGKILL)
        drop(deployment.project, "day_01", batch_text(1))
        wait_for("Postgres to be gone", lambda: not own_server.embedded.is_running(), 30)
        down = deployment.command("pipeline", "status", check=False)
        assert down.returncode == 1
        assert "does not answer" in down.stderr
        assert own_server.embedded.start().started_by_us
        wait_for("the second model", lambda: trained(2), 180, lambda: servers.why(*SENSORS))
