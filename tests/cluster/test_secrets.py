"""Calls on a cluster find passwords on their node: neither messages nor files, lists and logs of Ray hold any."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from modyn_dagster.distributed.on_ray.cluster import connect
from modyn_dagster.distributed.on_ray.group import RayGroup
from modyn_dagster.distributed.on_ray.pool import RayPool
from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings
from tests.cluster import calls
from tests.cluster.nodes import Nodes, nodes_of

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

PASSWORD = secrets.token_hex(12)
SETTINGS = Settings(Path("/project"), Path("/home"), postgres_url=f"postgresql://modyn:{PASSWORD}@db.example:5432/modyn")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster whose node has the password in the environment of its `ray start`; this process leaves it in the end."""
    with nodes_of({**os.environ, "MODYN_POSTGRES_URL": str(SETTINGS.postgres_url)}) as nodes:
        nodes.start_head(2)
        ray = connect(nodes.address)
        yield nodes
        ray.shutdown()


def test_a_node_puts_in_its_own_password_and_ray_shows_it_nowhere(nodes: Nodes) -> None:
    # Ray reads its token when this is imported, so not before there are nodes.
    from ray.util.state import list_actors, list_jobs, list_objects, list_tasks, list_workers

    assert list(RayPool(nodes.address).map(calls.password_of, [SETTINGS] * 3)) == [PASSWORD[:4]] * 3
    assert RayGroup(nodes.address).run(calls.password_in_rank, SETTINGS, 2) == [PASSWORD[:4]] * 2
    other = Settings(Path("/project"), Path("/home"), postgres_url="postgresql://modyn:another@elsewhere/modyn")
    with pytest.raises(ConfigError, match="passwords are not sent"):
        list(RayPool(nodes.address).map(calls.password_of, [other]))
    lists = [
        list_of(nodes.dashboard, detail=True) for list_of in (list_tasks, list_actors, list_jobs, list_objects, list_workers)
    ]
    assert len(lists[0]) >= 6
    assert PASSWORD not in repr(lists)
    assert "another" not in repr(lists)
    files = [path for path in nodes.folder.rglob("*") if path.is_file()]
    assert any("worker" in path.name for path in files)
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
