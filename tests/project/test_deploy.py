"""Files of deployments: compose, image, systemd and chart name services, secrets and commands that there are."""

import copy
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from modyn_dagster.cli import main
from modyn_dagster.cli.services.command import HEALTH_PORTS
from modyn_dagster.private_files import SECRETS
from modyn_dagster.resources.code_location import location_name
from modyn_dagster.values.yaml_values import read_yaml
from tests.project.compose_schema import COMPOSE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("modyn*.service"))
PROGRAM = "/opt/modyn/bin/modyn-dagster"
#: Services of compose in the profile ``ray``.
NODES = ("ray-head", "ray-worker")
#: Settings of the pages and of Ray, which not every service has.
OF_SOME = ("MODYN_UI_TOKEN_FILE", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_yaml(ROOT / "compose.yaml")
    return content


def problems(content: Mapping[str, Any]) -> Iterator[str]:
    """Violations of the schema, and names that stand for nothing or for nobody."""
    validator = jsonschema.Draft202012Validator(COMPOSE)
    yield from (f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(content))
    used: dict[str, set[str]] = {"volumes": set(), "networks": set(), "secrets": set()}
    for name, service in content["services"].items():
        used["volumes"] |= {each["source"] for each in service.get("volumes", []) if each["type"] == "volume"}
        used["networks"] |= set(service.get("networks", []))
        used["secrets"] |= set(service.get("secrets", []))
        yield from (f"{name} waits for {other}" for other in service.get("depends_on", {}) if other not in content["services"])
        for variable, value in service.get("environment", {}).items():
            if variable.endswith(("_FILE", "_PATH")) and Path(value).name not in service.get("secrets", []):
                yield f"{name}: {variable} names a secret that it does not get"
    for kind, names in used.items():
        yield from (f"{kind}: {each} is declared or used alone" for each in names ^ set(content[kind]))


def common(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings that all services of ours have."""
    return {name: value for name, value in environment.items() if name not in OF_SOME}


def command_of(words: list[str]) -> click.Command:
    """The command that a command line of ours means; wrong usage is an error."""
    assert words[0] in ("modyn-dagster", PROGRAM), words
    command: click.Command = main
    arguments = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments.pop(0))
        assert found is not None, words
        command = found
    existing = [re.sub("^/etc/modyn/", f"{DEPLOY}/", argument) for argument in arguments]
    command.make_context(words[0], existing)
    return command


def test_compose_uses_known_keys_and_every_name_in_it_stands_for_something(compose: Mapping[str, Any]) -> None:
    assert list(problems(compose)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda services: services["mlflow"].update(healthchek={}), "'healthchek' was unexpected"),
        (lambda services: services["mlflow"]["ports"].append("5000:5000"), "does not match"),
        (lambda services: services["mlflow"]["ports"].append("0.0.0.0:5000:5000"), "does not match"),
        (lambda services: services["daemon"]["secrets"].remove("writer_url"), "MODYN_POSTGRES_URL_FILE names a secret"),
        (lambda services: services["ray-head"].update(secrets=["writer_url", "ui_token"]), "RAY_AUTH_TOKEN_PATH names a secret"),
        (lambda services: services["daemon"].update(networks=["pgaes"]), "pgaes is declared or used alone"),
        (lambda services: services["daemon"]["depends_on"].update(cod={"condition": "service_healthy"}), "waits for cod"),
        (lambda services: services["daemon"]["healthcheck"].update(interval="soon"), "does not match"),
    ],
)
def test_a_mistake_in_compose_is_found(compose: Mapping[str, Any], change: Any, problem: str) -> None:
    content = copy.deepcopy(dict(compose))
    change(content["services"])
    assert problem in "\n".join(problems(content))


def test_services_of_compose_are_ours_with_health_checks_secrets_by_file_and_no_rights(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    assert {*HEALTH_PORTS, *NODES, "postgres", "databases"} == set(services)
    for name, service in services.items():
        if "command" in service and name not in NODES:
            command_of(service["command"])
        assert ("healthcheck" in service) == (name != "databases")
        shown = [variable for variable in service.get("environment", {}) if variable in (*SECRETS, "POSTGRES_PASSWORD")]
        assert shown == []
        if name != "postgres":
            assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
    for name in HEALTH_PORTS:
        assert services[name]["hostname"] == name, "else each container leaves a folder of its own"
        assert services[name]["command"][:4] == ["modyn-dagster", "services", "run", name]
        assert services[name]["healthcheck"]["test"] == ["CMD", "modyn-dagster", "services", "health", name]
        command_of(services[name]["healthcheck"]["test"][1:])


def test_the_code_location_of_compose_is_reached_by_webserver_and_daemon_alone(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    assert "ports" not in services["code"]
    assert compose["networks"]["code"] == compose["networks"]["database"] == {"internal": True}
    with_it = {name for name, service in services.items() if "code" in service["networks"]}
    assert with_it == {"code", "webserver", "daemon"}
    [server] = read_yaml(DEPLOY / "workspace.yaml")["load_from"]
    assert server["grpc_server"]["host"] == "code"
    assert str(server["grpc_server"]["port"]) == services["code"]["command"][-1]


def test_nodes_of_ray_are_reached_in_a_network_of_their_own_with_a_token_and_see_state_and_postgres(
    compose: Mapping[str, Any],
) -> None:
    services = compose["services"]
    assert compose["networks"]["ray"] == {"internal": True}
    with_it = {name for name, service in services.items() if "ray" in service.get("networks", [])}
    assert with_it == {*NODES, "postgres", "daemon", "webserver"}
    for name in (*NODES, "daemon", "webserver"):
        environment = services[name]["environment"]
        assert (environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN_PATH"]) == ("token", "/run/secrets/ray_token")
        # A run finds what it was launched with, whichever node it is on.
        assert common(environment) == common(services["code"]["environment"])
        assert services[name]["volumes"] == services["code"]["volumes"]
    for name in NODES:
        assert (services[name]["profiles"], services[name]["networks"]) == (["ray"], ["ray"])
        assert "ports" not in services[name]
        # Ray keeps its sessions in /tmp, and its objects in /dev/shm.
        assert services[name]["tmpfs"] == ["/tmp"]  # noqa: S108 - a folder of the container's own
        assert services[name]["shm_size"] == "2g"
        assert services[name]["command"] == ["modyn-ray-node", name.removeprefix("ray-")]
        assert services[name]["healthcheck"]["test"] == ["CMD", "modyn-ray-node", "health"]
    assert not any("ray-head" in service.get("depends_on", {}) for service in services.values() if "profiles" not in service)


def test_every_service_of_compose_gets_the_secrets_it_needs_alone(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    pages, ray = {"writer_url", "ui_token"}, {"writer_url", "ray_token"}
    expected = {
        "code": pages,
        "mlflow": pages,
        "webserver": pages | ray,
        "daemon": pages | ray,
        "ray-head": ray,
        "ray-worker": ray,
    }
    assert {name: set(services[name]["secrets"]) for name in (*HEALTH_PORTS, *NODES)} == expected
    for name in NODES:
        assert "MODYN_UI_TOKEN_FILE" not in services[name]["environment"]
    for name in ("code", "mlflow"):
        assert "RAY_AUTH_MODE" not in services[name]["environment"]


@pytest.mark.process
def test_with_the_cluster_of_compose_replays_go_there_and_all_else_stays_as_shipped() -> None:
    script = (DEPLOY / "image" / "runtime.sh").read_text()
    assert 'sed -f "$here/ray.sed" /etc/modyn/dagster.yaml >/etc/modyn/ray/dagster.yaml' in script
    done = subprocess.run(
        ["sed", "-f", DEPLOY / "image" / "ray.sed", ROOT / "dagster.yaml"], capture_output=True, text=True, check=True
    )
    content, shipped = yaml.safe_load(done.stdout), read_yaml(ROOT / "dagster.yaml")
    launcher = content.pop("run_launcher")
    ours = {**shipped["run_launcher"]["config"], "ray": {"address": "http://ray-head:8265"}}
    assert launcher == {"module": "modyn_dagster.resources.ray_launcher", "class": "RoutingRunLauncher", "config": ours}
    # Above the launcher's own start_seconds, or it refuses to work.
    assert content["run_monitoring"].pop("start_timeout_seconds") == 1_000
    assert content == {name: value for name, value in shipped.items() if name != "run_launcher"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("role", "variables", "options"),
    [
        ("head", {}, ["--dashboard-host=10.1.2.3", "--num-cpus=0"]),
        ("worker", {}, ["--address=ray-head:6379"]),
        ("worker", {"MODYN_RAY_HEAD": "modyn-head-svc:6379"}, ["--address=modyn-head-svc:6379"]),
    ],
    ids=["head", "worker", "worker of another head"],
)
def test_a_node_starts_ray_at_its_own_address_with_the_addresses_of_the_databases(
    tmp_path: Path, role: str, variables: dict[str, str], options: list[str]
) -> None:
    programs = {
        "hostname": "echo 10.1.2.3",
        "modyn-dagster": "[ \"$*\" = 'db env' ]; echo \"export DAGSTER_PG_URL='postgresql://a b'\"",
        "ray": 'printf "%s\\n" "$DAGSTER_PG_URL" "$@"',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", DEPLOY / "image" / "ray_node.sh", role, "--num-cpus=3"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    address, *arguments = done.stdout.splitlines()
    assert address == "postgresql://a b"
    assert {"start", "--block", "--node-ip-address=10.1.2.3"} <= set(arguments)
    assert all(option in arguments for option in options)
    assert arguments[-1] == "--num-cpus=3", "the options of the command count"


@pytest.mark.parametrize("path", ["deploy/workspace.yaml", "deploy/systemd/workspace.yaml"])
def test_code_servers_have_the_name_under_which_commands_enter_their_runs(path: str) -> None:
    assert location_name(ROOT / path) == "modyn_dagster.definitions"


def test_the_image_copies_and_runs_scripts_that_are_there_and_its_compilers_stay_behind() -> None:
    text = (ROOT / "Dockerfile").read_text()
    build, final = re.split(r"^FROM .* AS build$", text, flags=re.MULTILINE)[1].split("FROM ${BASE}\n")
    assert "gcc" in build
    assert "apt-get" not in final
    assert "gcc" not in final
    assert re.findall(r"^USER (\d+):\d+$", final, re.MULTILINE) == ["10001"]
    for name in re.findall(r"(\w+\.sh)", text):
        assert (DEPLOY / "image" / name).is_file()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [line[1:] for line in ignored if line.startswith("!")]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert "deploy/secrets" in ignored


def test_the_image_alone_asks_its_code_location_for_lost_runs() -> None:
    shipped = (ROOT / "dagster.yaml").read_text()
    script = (DEPLOY / "image" / "runtime.sh").read_text()
    [(before, after)] = re.findall(r"^sed -i 's/\^(.+)\$/(.+)/' /etc/modyn/dagster.yaml$", script, re.MULTILINE)
    changed = read_yaml(ROOT / "dagster.yaml")["run_launcher"]["config"] | {"ask_code_server": True}
    assert yaml.safe_load(shipped.replace(f"{before}\n", f"{after}\n"))["run_launcher"]["config"] == changed
    assert yaml.safe_load(shipped)["run_launcher"]["config"] != changed


@pytest.mark.process
@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(path: Path) -> None:
    assert subprocess.run(["sh", "-n", path], check=False, capture_output=True).stderr == b""


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(HEALTH_PORTS))
def test_the_health_of_a_container_is_that_of_the_service_it_runs(tmp_path: Path, name: str) -> None:
    program = tmp_path / "modyn-dagster"
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    program.chmod(0o755)
    command = tmp_path / "cmdline"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def health(*words: str) -> tuple[int, str]:
        command.write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
        done = subprocess.run(
            ["sh", DEPLOY / "image" / "health.sh", command], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.strip()

    running = ["/opt/modyn/bin/modyn-dagster", "services", "run", name, "--host", "0.0.0.0"]  # noqa: S104 - nothing is bound
    assert health("/sbin/docker-init", "--", *running) == (7, f"services health {name}")
    assert health("/opt/modyn/bin/modyn-dagster", "db", "upgrade") == (0, "")


@pytest.mark.process
def test_secrets_are_made_once_in_a_folder_that_others_cannot_enter(tmp_path: Path, compose: Mapping[str, Any]) -> None:
    folder = tmp_path / "secrets"

    def make() -> dict[str, str]:
        done = subprocess.run(["sh", DEPLOY / "make-secrets.sh", folder], check=True, capture_output=True, text=True)
        made = {path.name: path.read_text() for path in folder.iterdir()}
        assert [name for name, value in made.items() if value in done.stdout + done.stderr] == []
        return made

    first = make()
    assert make() == first
    assert set(first) == set(compose["secrets"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}
    assert first["writer_url"] == f"postgresql://modyn_writer:{first['writer_password']}@postgres:5432"
    passwords = [first[name] for name in first if not name.endswith("_url")]
    assert len(set(passwords)) == len(passwords)
    assert min(map(len, passwords)) == 48


@pytest.mark.process
def test_systemd_accepts_the_units_and_they_run_commands_that_there_are(tmp_path: Path) -> None:
    assert {unit.stem.removeprefix("modyn-") for unit in UNITS} == {*HEALTH_PORTS, "database"}
    for path in [*UNITS, DEPLOY / "systemd" / "modyn.target"]:
        # The program itself is not installed here.
        (tmp_path / path.name).write_text(path.read_text().replace(PROGRAM, shutil.which("true") or ""))
    for unit in UNITS:
        [line] = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.MULTILINE)
        command_of(line.split())
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        verified = subprocess.run(
            [analyze, "verify", "--man=no", *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=False
        )
        assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_have_settings_without_secrets_and_end_before_they_are_killed(unit: Path) -> None:
    sections = re.findall(r"^\[(\w+)\]$", unit.read_text(), re.MULTILINE)
    assert sections == ["Unit", "Service", "Install"]
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))
    assert settings["User"] == "modyn"
    files = [part.split("=")[0] for part in settings["Environment"].split()]
    assert {name.removesuffix("_FILE") for name in files} <= set(SECRETS)
    if settings.get("Type") != "oneshot":
        [grace] = re.findall(r"--grace (\d+)", settings["ExecStart"])
        assert int(grace) < int(settings["TimeoutStopSec"])


def test_claims_are_where_all_units_and_all_containers_see_them(compose: Mapping[str, Any]) -> None:
    lines = (DEPLOY / "systemd" / "modyn.env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert settings["MODYN_CLAIMS"] == f"{settings['MODYN_HOME']}/claims"
    for unit in UNITS:
        assert settings["MODYN_HOME"] == f"/var/lib/{re.findall(r'^StateDirectory=(.+)$', unit.read_text(), re.MULTILINE)[0]}"
    for name in HEALTH_PORTS:
        service = compose["services"][name]
        assert service["environment"]["MODYN_CLAIMS"] == "/state/claims"
        assert {"type": "volume", "source": "state", "target": "/state"} in service["volumes"]
