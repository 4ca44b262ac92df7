"""The interface over which ranks on several hosts reach each other."""

import json
import subprocess
import sys

import pytest

from modyn_dagster.distributed.on_ray.group import interface_towards
from tests.cluster.hosts import needs_hosts, network_of

SHOW = """
import json, os, sys
from modyn_dagster.distributed.on_ray.group import use_interface_towards
use_interface_towards(sys.argv[1])
print(json.dumps([os.environ.get("GLOO_SOCKET_IFNAME"), os.environ.get("NCCL_SOCKET_IFNAME")]))
"""


def shown(*command: str) -> list[str | None]:
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str | None] = json.loads(result.stdout)
    return found


def test_a_meeting_point_on_this_machine_is_reached_over_the_loopback_interface() -> None:
    assert interface_towards("127.0.0.1", 6379) == "lo"
    assert interface_towards("localhost", 6379) == "lo"


@pytest.mark.process
@needs_hosts
def test_each_host_names_its_interface_towards_the_meeting_point_unless_it_is_told_one() -> None:
    with network_of(2) as network:
        first, second = network.hosts
        point, show = f"tcp://{first.address}:29500", (sys.executable, "-c", SHOW)
        # The host of the meeting point, too: others have to reach it.
        for host in (first, second):
            assert shown(*host.command(*show, point)) == ["cable", "=cable"]
        chosen = ("env", "GLOO_SOCKET_IFNAME=lo")
        assert shown(*second.command(*chosen, *show, point)) == ["lo", "=cable"]
        # No way leads there: the libraries choose, and their error says what to do.
        assert shown(*second.command(*show, "tcp://192.0.2.77:29500")) == [None, None]
