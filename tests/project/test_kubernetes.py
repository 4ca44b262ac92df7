"""Files for Kubernetes: the values of Dagster's chart and the Ray cluster of KubeRay agree with the image and the package."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from modyn_dagster.private_files import SECRETS
from modyn_dagster.resources.ray_launcher import RoutingRunLauncher
from modyn_dagster.settings import Settings
from modyn_dagster.spec.operation import bytes_of
from modyn_dagster.values.yaml_values import read_yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
NODE: Final = (DEPLOY / "image" / "ray_node.sh").read_text()
#: Variables in pods that other programs read: Ray, the chart's dagster.yaml, and the library of the object store.
OF_OTHERS: Final = (
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_USAGE_STATS_ENABLED",
    "DAGSTER_PG_PASSWORD",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)
#: Keys of the secret `modyn-settings` that docs/deploy.md names.
NAMED: Final = set(re.findall(r"^   ([A-Z_]+)=", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def cluster() -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_yaml(DEPLOY / "raycluster.yaml")
    return content


def pods(cluster: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Pods by their role."""
    [workers] = cluster["spec"]["workerGroupSpecs"]
    return {"head": cluster["spec"]["headGroupSpec"]["template"]["spec"], "worker": workers["template"]["spec"]}


def containers(cluster: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Role, pod, and the one container of each."""
    for role, pod in pods(cluster).items():
        [container] = pod["containers"]
        yield role, pod, container


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Variables with their values; of those from secrets, the name of the key."""
    found = {each["name"]: each.get("value") or f"key:{each['valueFrom']['secretKeyRef']['key']}" for each in container["env"]}
    assert len(found) == len(container["env"]), "a name stands twice"
    return found


def test_nodes_start_by_the_program_of_the_image_with_the_cores_that_their_pods_have(cluster: Mapping[str, Any]) -> None:
    assert cluster["metadata"]["annotations"] == {"ray.io/overwrite-container-cmd": "true"}
    assert "/usr/local/bin/modyn-ray-node" in (DEPLOY / "image" / "runtime.sh").read_text()
    cores = {"head": "0"}
    for role, _, container in containers(cluster):
        assert container["command"] == ["modyn-ray-node"]
        assert container["args"][0] == role
        assert f"\n{role}) set -- " in NODE
        [number] = re.findall(r"--num-cpus=(\d+)", " ".join(container["args"])) or [cores[role]]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert role == "head" or container["resources"]["limits"]["cpu"] == number
    assert "--num-cpus=0" in NODE


def test_workers_and_daemon_find_the_head_by_its_service_and_ports(cluster: Mapping[str, Any]) -> None:
    service = f"{cluster['metadata']['name']}-head-svc"
    [head] = pods(cluster)["head"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in head["ports"]}
    assert ports == {"gcs-server": 6379, "dashboard": 8265}
    assert f"--port={ports['gcs-server']} " in NODE
    assert f"--dashboard-port={ports['dashboard']} " in NODE
    for _, _, container in containers(cluster):
        assert environment(container)["MODYN_RAY_HEAD"] == f"{service}:{ports['gcs-server']}"
    launcher = read_yaml(DEPLOY / "helm-values-ray.yaml")["runLauncher"]["config"]["customRunLauncher"]
    assert launcher["config"]["ray"]["address"] == f"http://{service}:{ports['dashboard']}"


def test_every_variable_of_a_node_is_read_and_every_secret_comes_from_kubernetes(cluster: Mapping[str, Any]) -> None:
    sources = [*(ROOT / "modyn_dagster").rglob("*.py"), DEPLOY / "image" / "ray_node.sh", ROOT / "dagster.yaml"]
    read = "".join(path.read_text() for path in sources)
    for _, pod, container in containers(cluster):
        variables = environment(container)
        assert [name for name in variables if name not in OF_OTHERS and name.removesuffix("_FILE") not in read] == []
        assert set(SECRETS).isdisjoint(variables)
        assert (variables["RAY_AUTH_MODE"], variables["MODYN_FILES"]) == ("token", "key:MODYN_FILES")
        [mounted] = [each["secret"] for each in pod["volumes"] if "secret" in each]
        items = {each["key"]: each["path"] for each in mounted["items"]}
        assert items == {"MODYN_POSTGRES_URL": "MODYN_POSTGRES_URL", "RAY_AUTH_TOKEN": "RAY_AUTH_TOKEN"}, "not that of the pages"
        [folder] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "secrets"]
        files = {name: value for name, value in variables.items() if name.endswith(("_FILE", "_PATH"))}
        assert set(files.values()) == {f"{folder}/{path}" for path in items.values()}
        refs = [each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each]
        of_ours = {each["key"] for each in refs if each["name"] == mounted["secretName"]} | set(items)
        assert of_ours <= NAMED, "docs/deploy.md names them"
        assert {each["name"] for each in refs} == {"modyn-settings", "modyn-dagster-postgres"}


def test_a_node_keeps_copies_of_the_store_on_a_disk_of_its_own_that_is_large_enough(cluster: Mapping[str, Any]) -> None:
    for _, pod, container in containers(cluster):
        variables = environment(container) | {"MODYN_FILES": "s3://bucket/modyn"}
        variables.pop("MODYN_POSTGRES_URL_FILE")
        settings = Settings.from_environment(variables)
        volumes = {each["name"]: each for each in pod["volumes"]}
        places = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
        assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
        room = places[str(settings.home)]["emptyDir"]["sizeLimit"]
        assert int(room.removesuffix("Gi")) * 2**30 > settings.cache_size > bytes_of("20GB")
        assert "emptyDir" in places["/tmp"], "Ray's sessions, as all else is read-only"  # noqa: S108 - a folder of the pod's own


def test_nodes_have_the_image_the_account_and_the_paths_of_the_chart(cluster: Mapping[str, Any]) -> None:
    [code] = read_yaml(DEPLOY / "helm-values.yaml")["dagster-user-deployments"]["deployments"]
    charts = {each["name"]: each["value"] for each in code["env"] if each["name"].startswith("MODYN_")}
    claims = [each for each in code["volumes"] if each["name"] == "project"]
    for _, pod, container in containers(cluster):
        assert container["image"] == f"{code['image']['repository']}:{code['image']['tag']}"
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
        assert pod["automountServiceAccountToken"] is False
        expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == expected
        assert charts.items() <= environment(container).items()
        assert [each for each in pod["volumes"] if each["name"] == "project"] == claims
    version = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version is not None
    assert cluster["spec"]["rayVersion"] == version[1]


def test_the_chart_sends_replays_to_ray_by_a_launcher_that_takes_its_settings() -> None:
    values = read_yaml(DEPLOY / "helm-values-ray.yaml")
    named = values["runLauncher"]["config"]["customRunLauncher"]
    assert (named["module"], named["class"]) == (RoutingRunLauncher.__module__, RoutingRunLauncher.__name__)
    launcher = RoutingRunLauncher.from_config_value(None, named["config"])
    assert set(named["config"]) <= set(launcher.config_type())
    assert launcher.ask_code_server
    assert launcher.ray is not None
    assert values["dagsterDaemon"]["runMonitoring"]["startTimeoutSeconds"] > launcher.ray.settings.start_seconds


def test_values_of_the_chart_run_the_image_as_its_account_with_secrets_from_kubernetes() -> None:
    values = read_yaml(DEPLOY / "helm-values.yaml")
    [code] = values["dagster-user-deployments"]["deployments"]
    for part in (values["dagsterWebserver"], values["dagsterDaemon"], code):
        assert part["securityContext"]["runAsUser"] == 10001
        names = {each["name"] for each in part["env"]}
        assert names.isdisjoint(SECRETS)
        assert {"MODYN_HOME", "MODYN_PROJECT", "MODYN_DAGSTER_DIR"} <= names
        assert {each["name"] for each in part["volumeMounts"]} == {each["name"] for each in part["volumes"]}
    pages = values["dagsterWebserver"]
    assert pages["service"]["port"] == pages["readinessProbe"]["tcpSocket"]["port"] == 3000, "no port of root's"
    ours = values["dagsterDaemon"]["runCoordinator"]["config"]["customRunCoordinator"]
    shipped = read_yaml(ROOT / "dagster.yaml")["run_coordinator"]
    assert (ours["module"], ours["class"]) == (shipped["module"], shipped["class"])
