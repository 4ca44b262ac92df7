"""Sampling in shards measured on the workers of two hosts, which are namespaces of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import needs_hosts, network_of
from tests.cluster.nodes import nodes_of

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.soak("ray"), needs_hosts]


def test_figures_of_sampling_in_shards_are_measured_on_two_hosts_too(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with network_of(2) as network, nodes_of(environment, host=network.address) as nodes:
        nodes.start_head(0)
        for host in network.hosts:
            nodes.start_node(1, host=host)
        command = [sys.executable, "benchmarks/distributed_sampling.py", "--quick", "--workers", "1", "--ray", nodes.address]
        subprocess.run(
            [*command, "--json", str(tmp_path / "found.json")], env=environment | nodes.access, cwd=ROOT, check=True, timeout=900
        )
    found = json.loads((tmp_path / "found.json").read_text())
    # One worker here, two of the cluster, and what needs neither.
    wanted = {"fig7.dist_cp", "fig7.cent_kv_rj", "fig8.1", "fig8.ray", "fig8.ray.ten", "fig8.one_thread", "fig9.pool.1000"}
    assert wanted <= found.keys()
    assert all(found[name]["value"] > 0 for name in wanted)
