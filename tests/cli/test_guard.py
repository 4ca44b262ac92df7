"""The guard of the pages: requests that a page of another server can make a browser send, and those that people send."""

import asyncio
import base64
import itertools
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.cli.ui.guard.judgement import DAGSTER, MLFLOW, Surface
from modyn_dagster.cli.ui.guard.middleware import Guard
from modyn_dagster.cli.ui.guard.mlflow_server import guarded_options
from modyn_dagster.cli.ui.guard.reports import Reports
from modyn_dagster.cli.ui.guard.rules import LOCAL, Rules
from modyn_dagster.errors import ConfigError

HERE = "127.0.0.1:3000"
JSON = "application/json"
TOKEN = "a-token-of-many-characters"
#: Ports of other programs on this machine are other origins as well.
FOREIGN = [
    "https://evil.example",
    "http://evil.example:3000",
    "http://127.0.0.1:8080",
    "http://localhost:3000",
    "null",
    "garbage",
]
#: Content types that a page may send without asking: a form, `fetch` without CORS, and none at all.
FORMS = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "text/plain; application/json",
    None,
]


@dataclass
class Application:
    """An application that notes whether anything has reached it."""

    reached: int = 0
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        self.reached += 1
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": b"passed"})
        else:
            await send({"type": "websocket.accept"})


def send(
    method: str = "GET",
    path: str = "/",
    *,
    rules: Rules | None = None,
    surface: Surface = DAGSTER,
    host: str | None = HERE,
    query: str = "",
    **headers: str | None,
) -> tuple[int, str]:
    """Send a request, or the opening of a WebSocket; return the status and the content of the answer."""
    application = Application()
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "websocket" if method == "WEBSOCKET" else "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value is not None],
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def note(message: MutableMapping[str, Any]) -> None:
        application.sent.append(message)

    asyncio.run(Guard(application, rules or Rules(), surface)(scope, receive, note))
    first = application.sent[0]
    assert first["type"].startswith("websocket.") is (method == "WEBSOCKET")
    status = {"websocket.accept": 101, "websocket.close": 403}.get(first["type"]) or first["status"]
    assert (application.reached == 1) is (status in (101, 200))
    return status, "".join(message.get("body", b"").decode() for message in application.sent)


#: Every kind of request that the servers answer.
REQUESTS: list[tuple[str, str]] = [
    ("GET", "/"),
    ("GET", "/server_info"),
    ("POST", "/graphql"),
    ("POST", "/report_asset_materialization/prices"),
    ("POST", "/report_asset_check/prices"),
    ("PUT", "/api/2.0/mlflow-artifacts/artifacts/x"),
    ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/x"),
    ("WEBSOCKET", "/graphql"),
]
everything = pytest.mark.parametrize(("method", "path"), REQUESTS)
servers = pytest.mark.parametrize("surface", [DAGSTER, MLFLOW], ids=["dagster", "mlflow"])


@servers
@everything
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "192.168.evil.example", "", None]
)
def test_a_name_that_was_pointed_to_this_machine_reaches_nothing(
    method: str, path: str, host: str | None, surface: Surface
) -> None:
    status, text = send(method, path, host=host, surface=surface, content_type=JSON)
    assert status == 403
    assert method == "WEBSOCKET" or "MODYN_UI_ALLOWED_HOSTS" in text


@servers
@everything
@pytest.mark.parametrize("origin", FOREIGN)
def test_a_page_of_another_origin_reaches_nothing(method: str, path: str, origin: str, surface: Surface) -> None:
    status, text = send(method, path, origin=origin, surface=surface, content_type=JSON)
    assert status == 403
    assert method == "WEBSOCKET" or "MODYN_UI_ALLOWED_ORIGINS" in text


@servers
@everything
@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
def test_a_picture_a_frame_or_a_script_of_another_page_reaches_nothing(
    method: str, path: str, site: str, surface: Surface
) -> None:
    for mode, destination in [("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")]:
        headers: dict[str, Any] = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": destination}
        assert send(method, path, surface=surface, content_type=JSON, **headers)[0] == 403


def test_a_link_from_another_page_opens_pages_and_sends_no_form() -> None:
    link: dict[str, Any] = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert send("GET", "/runs/1", **link)[0] == 200
    assert send("POST", "/graphql", content_type=JSON, **link)[0] == 403


@servers
@pytest.mark.parametrize("path", ["/graphql", "/graphql/", "/prefix/graphql"])
def test_graphql_in_an_address_is_refused(path: str, surface: Surface) -> None:
    for method in ("GET", "HEAD"):
        assert send(method, path, query="query=mutation{wipeAssets}", surface=surface)[0] == 405
    assert send("GET", path, surface=surface, accept="text/html")[0] == 200


@servers
@everything
@pytest.mark.parametrize("content_type", FORMS)
def test_a_form_changes_nothing(method: str, path: str, content_type: str | None, surface: Surface) -> None:
    if method == "POST":
        status, text = send(method, path, content_type=content_type, surface=surface)
        assert status == 415
        assert JSON in text


def test_dagster_takes_json_alone_and_mlflow_also_what_no_page_sends_unasked() -> None:
    assert send("POST", "/graphql", content_type="application/graphql")[0] == 415
    assert send("PUT", "/anything", content_type="application/octet-stream")[0] == 415
    assert send("POST", "/v1/traces", content_type="application/x-protobuf", surface=MLFLOW)[0] == 200
    assert send("PUT", "/api/2.0/mlflow-artifacts/artifacts/x", surface=MLFLOW)[0] == 200


@servers
@pytest.mark.parametrize("host", ["127.0.0.1:3000", "localhost:3000", "LOCALHOST:8080", "[::1]:3000", "[::1]", "localhost"])
def test_pages_of_the_server_itself_may_do_everything_under_each_of_its_names(host: str, surface: Surface) -> None:
    for method, path in REQUESTS:
        ours: list[dict[str, Any]] = [
            {},
            {"origin": f"http://{host}"},
            {"origin": f"https://{host}", "sec_fetch_site": "same-origin"},
        ]
        for headers in ours:
            status, _ = send(method, path, host=host, surface=surface, content_type=f"{JSON}; charset=utf-8", **headers)
            assert status in (101, 200)


def test_hosts_and_origins_of_the_settings_are_let_in_and_no_others() -> None:
    rules = Rules.from_environment(
        {"MODYN_UI_ALLOWED_HOSTS": "Train.example, [fd00::1]", "MODYN_UI_ALLOWED_ORIGINS": "https://portal.example"}, "10.0.0.7"
    )
    assert rules.hosts == LOCAL | {"train.example", "[fd00::1]", "10.0.0.7"}
    assert send(rules=rules, host="train.example")[0] == 200
    from_portal: dict[str, Any] = {"origin": "https://portal.example", "sec_fetch_site": "cross-site", "content_type": JSON}
    assert send("POST", "/graphql", rules=rules, **from_portal)[0] == 200
    assert send("WEBSOCKET", "/graphql", rules=rules, **from_portal)[0] == 101
    for origin in ("http://portal.example", "https://portal.example:444", "https://portal.example.evil.example"):
        assert send("POST", "/graphql", rules=rules, **{**from_portal, "origin": origin})[0] == 403


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@servers
@everything
def test_with_a_token_nothing_answers_without_it(method: str, path: str, surface: Surface) -> None:
    rules = Rules(token=TOKEN)
    ask: dict[str, Any] = {"rules": rules, "surface": surface, "content_type": JSON}
    wrong = [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        basic("guess"),
        "Basic %%%",
        f"Digest {TOKEN}",
    ]
    for authorization in [*wrong, "Bearer é"]:
        assert send(method, path, authorization=authorization, **ask)[0] in (401, 403)
    for authorization in (f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)):
        assert send(method, path, authorization=authorization, **ask)[0] in (101, 200)


def test_a_browser_asks_for_the_token_by_itself() -> None:
    messages: list[MutableMapping[str, Any]] = []

    async def note(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", HERE.encode())]}
    asyncio.run(Guard(Application(), Rules(token=TOKEN), DAGSTER)(scope, None, note))  # type: ignore[arg-type]
    assert messages[0]["status"] == 401
    assert dict(messages[0]["headers"])[b"www-authenticate"].startswith(b"Basic ")


def test_pages_are_shown_in_no_frame_of_others() -> None:
    application, messages = Application(), []

    async def note(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", HERE.encode())]}
    asyncio.run(Guard(application, Rules(), DAGSTER)(scope, None, note))  # type: ignore[arg-type]
    assert (b"x-frame-options", b"SAMEORIGIN") in messages[0]["headers"]


@servers
@everything
def test_behind_a_proxy_only_requests_with_a_user_pass(method: str, path: str, surface: Surface) -> None:
    rules = Rules.from_environment({"MODYN_UI_USER_HEADER": "X-Forwarded-User"})
    for user, statuses in ((None, (401, 403)), ("", (401, 403)), ("ann", (101, 200))):
        assert send(method, path, rules=rules, surface=surface, content_type=JSON, x_forwarded_user=user)[0] in statuses


def test_read_only_servers_are_read_and_not_changed() -> None:
    rules = Rules(read_only=True)
    for path in ("/report_asset_materialization/prices", "/report_asset_check/prices", "/report_asset_observation/prices"):
        status, text = send("POST", path, rules=rules, content_type=JSON)
        assert status == 403
        assert "MODYN_UI_READ_ONLY" in text
    assert send("POST", "/graphql", rules=rules, content_type=JSON)[0] == 200
    mlflow: dict[str, Any] = {"rules": rules, "surface": MLFLOW, "content_type": JSON}
    for method, path in [
        ("POST", "runs/create"),
        ("POST", "runs/search/x"),
        ("PUT", "artifacts/search"),
        ("DELETE", "runs/search"),
    ]:
        assert send(method, f"/api/2.0/mlflow/{path}", **mlflow)[0] == 403
    for path in ("runs/search", "experiments/search", "experiments/search-datasets"):
        assert send("POST", f"/ajax-api/2.0/mlflow/{path}", **mlflow)[0] == 200


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("MODYN_UI_ALLOWED_HOSTS", "*", "no wildcards"),
        ("MODYN_UI_ALLOWED_HOSTS", "train.example:3000", "without port"),
        ("MODYN_UI_ALLOWED_ORIGINS", "*", "origins such as"),
        ("MODYN_UI_ALLOWED_ORIGINS", "null", "origins such as"),
        ("MODYN_UI_ALLOWED_ORIGINS", "https://portal.example/", "origins such as"),
        ("MODYN_UI_TOKEN", "short", "openssl rand"),
        ("MODYN_UI_TOKEN", "with a space in it, secret", "openssl rand"),
        ("MODYN_UI_USER_HEADER", "X User", "name of a header"),
        ("MODYN_UI_READ_ONLY", "perhaps", "true or false"),
    ],
)
def test_a_malformed_rule_is_an_error_that_names_it_and_tells_no_token(name: str, value: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)) as caught:
        Rules.from_environment({name: value})
    assert rule in str(caught.value)
    assert name != "MODYN_UI_TOKEN" or value not in str(caught.value)


def test_a_token_is_not_shown() -> None:
    assert TOKEN not in repr(Rules(token=TOKEN))


@pytest.mark.process  # MLflow starts a program while it is imported
def test_mlflows_own_checks_let_in_what_the_rules_let_in_and_no_more() -> None:
    from mlflow.server.security_utils import is_allowed_host_header, should_block_cors_request

    options = guarded_options(Rules(hosts=LOCAL | {"train.example"}, origins=frozenset({"https://portal.example"})))
    named = dict(itertools.pairwise(options))
    hosts, origins = (named[name].split(",") for name in ("--allowed-hosts", "--cors-allowed-origins"))
    for host in ("127.0.0.1:5000", "localhost", "[::1]:5000", "[::1]", "train.example", "train.example:5000"):
        assert is_allowed_host_header(hosts, host)
        assert not should_block_cors_request(f"https://{host}", "POST", origins)
    assert not should_block_cors_request("https://portal.example", "POST", origins)
    for host in ("evil.example", "192.168.evil.example", "10.0.0.7", "train.example.evil.example"):
        assert not is_allowed_host_header(hosts, host)
        assert should_block_cors_request(f"https://{host}", "POST", origins)


def test_an_installation_without_the_guards_entry_point_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modyn_dagster.cli.ui.guard.mlflow_server.entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match=r"mlflow\.app.*install modyn-dagster again"):
        guarded_options(Rules())


@given(
    host=st.text(max_size=30), origin=st.text(max_size=40), authorization=st.text(max_size=40), content_type=st.text(max_size=20)
)
def test_any_bytes_in_the_headers_get_an_answer(host: str, origin: str, authorization: str, content_type: str) -> None:
    rules = Rules(token=TOKEN)
    for at in (host, HERE):
        status, _ = send(
            "POST", "/graphql", rules=rules, host=at, origin=origin, authorization=authorization, content_type=content_type
        )
        assert status in (401, 403)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A folder with one report, beside a file that is none and links that lead out of it."""
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "clicks.html").write_text("the report")
    (folder / "secret.txt").write_text("no report")
    (tmp_path / "outside.html").write_text("outside")
    (folder / "linked.html").symlink_to(tmp_path / "outside.html")
    (folder / "folder.html").mkdir()
    return folder


def asked(reports: Path, path: str, rules: Rules = Rules(), method: str = "GET", **headers: str) -> tuple[int, bytes, str]:  # noqa: B008
    """Status, content and security policy of an answer behind the guard; content ``passed`` is that of Dagster's own pages."""
    sent: list[MutableMapping[str, Any]] = []

    async def note(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def nothing() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in ({"host": HERE} | headers).items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": given}
    asyncio.run(Guard(Reports(Application(), reports), rules, DAGSTER)(scope, nothing, note))
    policy = dict(sent[0]["headers"]).get(b"content-security-policy", b"")
    return sent[0]["status"], sent[1]["body"], policy.decode()


def test_a_report_is_served_beside_dagsters_pages_in_a_sandbox(reports: Path) -> None:
    status, body, policy = asked(reports, "/modyn/reports/clicks.html")
    assert (status, body) == (200, b"the report")
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert asked(reports, "/modyn/reports/clicks.html", method="HEAD")[:2] == (200, b"")
    for path in ("/", "/assets", "/modyn/reports", "/modyn/other"):
        assert asked(reports, path)[1] == b"passed"


@pytest.mark.parametrize(
    "name",
    [
        "missing.html",
        "secret.txt",
        "linked.html",
        "folder.html",
        "../outside.html",
        "..",
        "",
        "/etc/passwd",
        "a%2fb.html",
        "\x00.html",
    ],
)
def test_nothing_but_a_report_of_the_folder_is_served(reports: Path, name: str) -> None:
    status, body, _ = asked(reports, f"/modyn/reports/{name}")
    assert status == 404
    assert b"outside" not in body


def test_a_report_obeys_the_rules_of_the_other_pages(reports: Path) -> None:
    page = "/modyn/reports/clicks.html"
    assert asked(reports, page, host="evil.example")[0] == 403
    assert asked(reports, page, origin="https://evil.example")[0] == 403
    assert asked(reports, page, Rules(token=TOKEN))[0] == 401
    assert asked(reports, page, Rules(token=TOKEN), authorization=f"Bearer {TOKEN}")[0] == 200
    assert asked(reports, page, method="POST", content_type=JSON)[0] == 405
