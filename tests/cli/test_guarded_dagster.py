"""Dagster's webserver behind the guard, as a process over a real instance: forged requests change nothing, ours work."""

import base64
import http.client
import json
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dagster import DagsterInstance
from playwright.sync_api import sync_playwright

from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Services
from modyn_dagster.cli.ui.services import HOST, free_port, webserver

pytestmark = pytest.mark.process

CHROMIUM = shutil.which("chromium")
TOKEN = "a-token-of-many-characters"
PRICES = "/report_asset_materialization/prices"
WIPE = 'mutation { wipeAssets(assetPartitionRanges: [{assetKey: {path: ["prices"]}}]) { __typename } }'
DAGSTER_HOME = "telemetry: {enabled: false}\n"
DEFINITIONS = """
from dagster import Definitions, asset

@asset
def prices(): ...

defs = Definitions(assets=[prices])
"""


class Client:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            content = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, content, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            # The content of an accepted WebSocket has no end.
            return answer.status, "" if answer.status == 101 else answer.read().decode()
        finally:
            connection.close()

    def graphql(self, query: str, **headers: str) -> Any:
        status, text = self.send("POST", "/graphql", {"query": query}, content_type="application/json", **headers)
        assert status == 200, text
        return json.loads(text)["data"]

    def materializations(self, **headers: str) -> int:
        query = '{ assetNodes(assetKeys: [{path: ["prices"]}]) { assetMaterializations { runId } } }'
        return len(self.graphql(query, **headers)["assetNodes"][0]["assetMaterializations"])

    def open_websocket(self, **headers: str) -> int:
        key = base64.b64encode(os.urandom(16)).decode()
        opening = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": key}
        status, _ = self.send("GET", "/graphql", **opening, sec_websocket_protocol="graphql-ws", **headers)
        return status


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Two servers of one instance: an ordinary one, and a read-only one that asks for a token."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "dagster.yaml").write_text(DAGSTER_HOME)
    (folder / "definitions.py").write_text(DEFINITIONS)
    (folder / "workspace.yaml").write_text("load_from: [{python_file: definitions.py}]\n")
    # Two processes at once may not make the tables of SQLite.
    with DagsterInstance.from_config(str(folder)):
        pass
    location = CodeLocation(folder, folder)
    first = free_port(16_000 + os.getpid() % 4_000)
    second = free_port(first + 1)
    started = [
        webserver(location, {}, first),
        webserver(location, {"MODYN_UI_TOKEN": TOKEN, "MODYN_UI_READ_ONLY": "true"}, second),
    ]
    services = [Services(folder / str(port), folder) for port in (first, second)]
    try:
        for group, service in zip(services, started):
            group.start(service)
        for group, service in zip(services, started):
            group.wait_until_answering([service], 120)
        yield Client(first), Client(second)
    finally:
        for group in services:
            group.stop()


@pytest.mark.soak("screens")
def test_what_a_foreign_page_sends_changes_nothing_and_what_we_send_does(servers: tuple[Client, Client]) -> None:
    client, _ = servers
    json_type = "application/json"
    evil = "https://evil.example"
    ours = f"http://{HOST}:{client.port}"
    assert client.send("POST", PRICES, "{}", content_type=json_type) == (200, "{}")
    assert client.materializations(origin=ours, sec_fetch_site="same-origin") == 1

    query = {"query": WIPE}
    address = "/graphql?query=" + WIPE.replace(" ", "%20").replace('"', "%22")
    refused = {
        "an image": client.send("GET", address, sec_fetch_site="cross-site", sec_fetch_dest="image")[0],
        "an image in an old browser": client.send("GET", address)[0],
        "a form": client.send("POST", address, "", content_type="application/x-www-form-urlencoded")[0],
        "text": client.send("POST", "/graphql", query, content_type="text/plain")[0],
        "a query as text": client.send("POST", "/graphql", WIPE, content_type="application/graphql")[0],
        "JSON of another page": client.send("POST", "/graphql", query, content_type=json_type, origin=evil)[0],
        "another name": client.send("POST", "/graphql", query, content_type=json_type, host=f"evil.example:{client.port}")[0],
        "a WebSocket": client.open_websocket(origin=evil),
        "a WebSocket by another name": client.open_websocket(host="evil.example", origin="http://evil.example"),
        "a report": client.send("POST", PRICES)[0],
        "a report of another page": client.send("POST", PRICES, "{}", content_type=json_type, origin="null")[0],
    }
    assert set(refused.values()) <= {403, 405, 415}, refused
    assert client.materializations() == 1

    assert client.open_websocket(origin=ours, sec_fetch_site="same-origin") == 101
    assert "<html" in client.send("GET", "/", sec_fetch_site="none")[1]
    assert client.graphql(WIPE, origin=ours)["wipeAssets"]["__typename"] == "AssetWipeSuccess"
    assert client.materializations() == 0


@pytest.mark.soak("screens")
def test_a_read_only_server_with_a_token_shows_everything_to_its_holder_and_changes_nothing(
    servers: tuple[Client, Client],
) -> None:
    client, reader = servers
    assert client.send("POST", PRICES, "{}", content_type="application/json")[0] == 200
    assert reader.send("GET", "/")[0] == 401
    assert reader.open_websocket() == 403

    token = {"authorization": f"Bearer {TOKEN}"}
    assert reader.materializations(**token) == 1
    assert reader.open_websocket(**token) == 101
    assert reader.graphql(WIPE, **token)["wipeAssets"]["__typename"] == "UnauthorizedError"
    assert reader.send("POST", PRICES, "{}", content_type="application/json", **token)[0] == 403
    assert reader.materializations(**token) == 1


#: Everything that a page can try without being asked for its origin, and what it is refused then.
ATTACK = """async ([server, wipe]) => {
  const address = `http://${server}/graphql?query=${encodeURIComponent(wipe)}`;
  await new Promise(done => { const image = new Image(); image.onload = image.onerror = done; image.src = address; });
  const json = JSON.stringify({query: wipe});
  const form = new URLSearchParams({query: wipe});
  await fetch(address, {method: "POST", mode: "no-cors", body: form});
  await fetch(`http://${server}/graphql`, {method: "POST", mode: "no-cors", body: json});
  const headers = {"content-type": "application/json"};
  await fetch(`http://${server}/graphql`, {method: "POST", headers, body: json}).catch(() => null);
  return await new Promise(done => {
    const socket = new WebSocket(`ws://${server}/graphql`, "graphql-ws");
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  });
}"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: as root, apt-get install chromium")
def test_in_a_browser_the_pages_work_also_with_a_token_and_a_page_of_another_origin_changes_nothing(
    servers: tuple[Client, Client],
) -> None:
    client, reader = servers
    client.send("POST", PRICES, "{}", content_type="application/json")
    before = client.materializations()
    assert before > 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"])
        context = browser.new_context(http_credentials={"username": "anybody", "password": TOKEN})
        page = context.new_page()
        failures: list[str] = []
        page.on("response", lambda answer: failures.append(answer.url) if answer.status >= 400 else None)
        answered = threading.Event()
        page.on("websocket", lambda socket: socket.on("framereceived", lambda _: answered.set()))
        page.goto(f"http://{HOST}:{reader.port}/assets/prices", wait_until="load")
        page.get_by_role("button", name="Materialize").first.wait_for()
        for _ in range(300):
            if answered.is_set():
                break
            page.wait_for_timeout(100)
        assert answered.is_set()
        assert failures == []

        other = browser.new_context().new_page()
        other.goto(f"http://localhost:{client.port}/server_info")
        assert other.evaluate(ATTACK, [f"{HOST}:{client.port}", WIPE]) == "refused"
        browser.close()
    assert client.materializations() == before
