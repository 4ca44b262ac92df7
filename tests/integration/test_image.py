"""The image without Docker: its scripts in bare roots of Debian, by chroot, stage after stage as in the Dockerfile.

The build root gets the compiler that the Dockerfile installs; the final one gets what the build left in /opt/modyn, and has
neither compiler nor pip. The base is a bare Debian with its own Python in place of Docker's image of the same release.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.databases import excessive_rights
from modyn_dagster.settings import Settings
from tests.cli.test_services_run import ROOT
from tests.debian_postgres import PASSWORD, running_server, server_programs
from tests.integration.harness.bare_root import PYTHON, BareRoot, bare_debian, needs_debootstrap, needs_root

pytestmark = [pytest.mark.soak("distributed"), needs_root, needs_debootstrap]

TARGET: Final = "/opt/modyn"
#: As in the Dockerfile, whose base has the headers of Python, which are a package of Debian.
APT: Final = f"apt-get -q update && apt-get -q install -y --no-install-recommends {{}} {PYTHON}-dev"
#: Service as the container's first process, until the health check of the image finds it well.
CONTAINER: Final = """
(
    until modyn-health >/dev/null 2>&1; do sleep 1; done
    echo healthy
    kill -TERM 1
) &
exec modyn-dagster services run mlflow --port 25000 >/tmp/mlflow.log 2>&1
"""
#: All services at once, each until it is healthy; then TERM, and their exit codes.
SERVICES: Final = """
ports="mlflow:5000 code:4000 webserver:3000 daemon:0"
for each in $ports; do
    name=${each%:*} port=${each#*:}
    case $name in
    mlflow) set -- --port 2$port ;;
    code) set -- --host 127.0.0.2 --port 2$port ;;
    webserver) set -- --port 2$port --workspace /tmp/workspace.yaml ;;
    daemon) set -- --workspace /tmp/workspace.yaml ;;
    esac
    modyn-dagster services run $name "$@" >/tmp/$name.log 2>&1 &
    echo $! >/tmp/$name.pid
    for i in $(seq 120); do
        if modyn-dagster services health $name >/dev/null; then break; fi
        if ! kill -0 $(cat /tmp/$name.pid) 2>/dev/null; then cat /tmp/$name.log; exit 1; fi
        sleep 1
    done
    modyn-dagster services health $name || { cat /tmp/$name.log; exit 1; }
done
for each in $ports; do kill -TERM $(cat /tmp/${each%:*}.pid); done
for each in $ports; do wait $(cat /tmp/${each%:*}.pid) || { cat /tmp/${each%:*}.log; exit 1; }; done
echo ended
"""


def copied(place: Path) -> Path:
    """Copy what the Dockerfile copies: the files that .dockerignore lets through."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "secrets")
    for each in allowed:
        source, target = ROOT / each, place / each
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, ignore=ignore) if source.is_dir() else shutil.copy(source, target)
    return place


@pytest.fixture(scope="module")
def image() -> Iterator[BareRoot]:
    """The final root, after the steps of the Dockerfile."""
    # Not in pytest's own folder: the image's account may not enter that.
    folder = Path(tempfile.mkdtemp(prefix="modyn-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    # Tests before may have closed the files of this process to other accounts.
    umask = os.umask(0o022)
    try:
        base = bare_debian(folder / "base")
        build, final = BareRoot(folder / "build", base), BareRoot(folder / "final", base)
        build.run(APT.format(compilers()), installs=True)
        copied(build.changes / "source")
        build.run(f"cd /source && sh deploy/image/build.sh {TARGET}", {"PYTHON": PYTHON}, installs=True)
        (final.changes / "opt").mkdir()
        (build.changes / "opt" / "modyn").rename(final.changes / "opt" / "modyn")
        scripts = final.changes / "usr" / "local" / "lib" / "modyn"
        # The parts of the path keep the modes of the base's.
        scripts.mkdir(parents=True)
        for each in [*(ROOT / "deploy" / "image").iterdir(), ROOT / "dagster.yaml", ROOT / "deploy" / "workspace.yaml"]:
            shutil.copy(each, scripts)
        final.run(f"sh /usr/local/lib/modyn/runtime.sh {TARGET}")
        yield final
    finally:
        os.umask(umask)
        shutil.rmtree(folder)


def compilers() -> str:
    """Packages that the build stage of the Dockerfile installs."""
    found = re.search(r"apt-get install -y --no-install-recommends ([\w .-]+?) &&", (ROOT / "Dockerfile").read_text())
    assert found is not None
    return found[1]


def as_account(script: str) -> str:
    """The script as the image's account."""
    (quoted,) = (script.replace("'", "'\\''"),)
    return f"cd /project && exec setpriv --reuid 10001 --regid 10001 --clear-groups sh -eu -c '{quoted}'"


def variables() -> dict[str, str]:
    """Variables that the Dockerfile sets."""
    text = re.search(r"^ENV (.+?[^\\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL)
    assert text is not None
    pairs = dict(part.split("=", 1) for part in text[1].replace("\\\n", " ").split())
    return pairs | {"PATH": f"{TARGET}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}


def test_the_image_passes_its_own_check_as_its_account(image: BareRoot) -> None:
    image.run(as_account(f"sh /usr/local/lib/modyn/check.sh {TARGET}"), variables())
    compilers = image.run("command -v cc gcc ld || true", variables())
    assert compilers == ""


def test_its_services_run_with_secrets_by_file_and_a_server_whose_roles_our_script_made(image: BareRoot, scratch: Path) -> None:
    programs = server_programs()
    if programs is None:
        pytest.skip("needs Debian's Postgres: apt-get install postgresql")
    with running_server(programs, scratch) as admin:
        secrets = image.changes / "run-secrets"
        subprocess.run(["sh", ROOT / "deploy" / "make-secrets.sh", secrets, f"127.0.0.1:{admin.port}"], check=True)
        # Docker mounts each file by itself; here it is the folder that must be entered.
        secrets.chmod(0o755)
        roles_made(admin, secrets)
        shutil.copytree(ROOT / "examples" / "baseball", image.changes / "project", dirs_exist_ok=True)
        workspace = "{load_from: [{grpc_server: {host: 127.0.0.2, port: 24000, location_name: modyn_dagster.definitions}}]}"
        files = {"MODYN_POSTGRES_URL_FILE": "/run-secrets/writer_url", "MODYN_UI_TOKEN_FILE": "/run-secrets/ui_token"}
        owner = {"MODYN_POSTGRES_OWNER_URL_FILE": "/run-secrets/owner_url"}
        assert "upgraded" in image.run(as_account("modyn-dagster db upgrade"), variables() | files | owner)
        script = f"echo '{workspace}' >/tmp/workspace.yaml\n{SERVICES}"
        assert image.run(as_account(script), variables() | files).splitlines()[-1] == "ended"
        assert image.run(as_account(CONTAINER), variables() | files) == "healthy\n"


def roles_made(admin: sa.URL, secrets: Path) -> None:
    """Run the script of compose.yaml's Postgres, and look at the rights of the writer."""
    environment = {"PATH": os.environ["PATH"], "PGHOST": "127.0.0.1", "PGPORT": str(admin.port), "PGPASSWORD": PASSWORD}
    environment |= {"POSTGRES_USER": "admin", "SECRETS": str(secrets)}
    done = subprocess.run(
        ["sh", ROOT / "deploy" / "postgres" / "roles.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    urls = {name: (secrets / f"{name}_url").read_text() for name in ("writer", "owner")}
    settings = Settings(secrets, secrets, postgres_url=urls["writer"], postgres_owner_url=urls["owner"])
    assert excessive_rights(settings) is None
