"""Webhooks: posted once, signed so that anybody can verify it, and judged by the status of the answer."""

import base64
import json
import logging
import math
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ChannelAway, ConfigError, DeliveryRefused, NotDelivered, is_permanent
from modyn_dagster.pipeline.event import Event, event_json
from modyn_dagster.pipeline.operate.notification.signature import signed_headers
from modyn_dagster.pipeline.operate.notification.webhook import Webhook
from modyn_dagster.spec.notification.channels import WebhookSpec
from tests.pipeline.notification.receiver import EVENT, Receiver, is_authentic, receiving, silent

SECRET = "a secret of the shop, in no log"


def post(url: str, event: Event = EVENT, within: float = 60, **fields: Any) -> None:
    Webhook(WebhookSpec(url=url, **fields), source="pipeline shop").deliver(event, "evt_1", within)


def test_the_example_of_standard_webhooks_is_signed_as_its_authors_do() -> None:
    key = base64.b64decode("plJ3nmyCDGBKInavdOK15jsl")
    body = b'{"event_type":"ping","data":{"success":true}}'
    signed = signed_headers(key, "msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert signed["webhook-signature"] == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_an_event_arrives_whole_with_its_name_its_id_and_the_time(receiver: Receiver) -> None:
    before = int(time.time())
    post(receiver.url)
    [request] = receiver.requests
    assert (request.method, request.path, request.headers["content-type"]) == ("POST", "/events/of-the-shop", "application/json")
    assert json.loads(request.body) == {
        "name": "score_below accuracy 2024-01-03T00:00:00+00:00",
        "kind": "score_below",
        "pipeline": "shop",
        "dataset": "orders",
        "run": 3,
        "trigger": "000003-000007",
        "at": "2024-01-04T12:00:00+00:00",
        "text": "shop: accuracy 0.7 of the active model is below 0.8",
        "reason": "40 samples",
        "score": 0.7,
        "threshold": 0.8,
        "manual": False,
        "attempt": 1,
        "error": None,
        "metric": "accuracy",
        "interval": ["2024-01-03T00:00:00+00:00", "2024-01-04T00:00:00+00:00"],
    }
    assert (request.headers["modyn-event"], request.headers["modyn-event-kind"]) == (EVENT.name, "score_below")
    assert request.headers["webhook-id"] == "evt_1"
    assert before <= int(request.headers["webhook-timestamp"]) <= time.time()
    assert "webhook-signature" not in request.headers


@given(
    text=st.text(),
    score=st.none() | st.floats(),
    at=st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC)),
    hours=st.integers(-12, 12),
)
def test_any_event_is_json_in_ascii_from_which_it_can_be_read_again(
    text: str, score: float | None, at: datetime, hours: int
) -> None:
    elsewhere = at.astimezone(timezone(timedelta(hours=hours)))
    content = json.loads(event_json(Event("n", "trigger", "p", "d", 1, "t", elsewhere, text, text, score)))
    assert (content["text"], datetime.fromisoformat(content["at"])) == (text, elsewhere)
    assert content["at"].endswith("+00:00")
    assert content["score"] == (score if score is not None and math.isfinite(score) else None)
    assert event_json(EVENT).isascii()


@pytest.mark.parametrize(
    ("secret", "key"),
    [(SECRET, SECRET.encode()), ("whsec_" + base64.b64encode(bytes(range(32))).decode(), bytes(range(32)))],
)
@pytest.mark.parametrize("place", ["file", "variable", "file of a variable"])
def test_a_receiver_that_has_the_secret_can_verify_the_signature(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str, key: bytes, place: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    if place == "variable":
        monkeypatch.setenv("SHOP_SECRET", secret)
    elif place == "file of a variable":
        monkeypatch.setenv("SHOP_SECRET_FILE", str(file))
    named: dict[str, Any] = {"secret_file": str(file)} if place == "file" else {"secret_env": "SHOP_SECRET"}
    post(receiver.url, **named)
    [request] = receiver.requests
    assert is_authentic(request, key)
    assert not is_authentic(request, key + b"x")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_success_is_a_success(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    post(receiver.url)


@pytest.mark.parametrize(
    ("status", "permanent", "away"),
    [
        *((status, True, False) for status in (300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 410, 413, 422, 451)),
        *((status, False, False) for status in (408, 425, 500, 502, 504, 599, 600)),
        *((status, False, True) for status in (429, 503)),
    ],
)
def test_an_answer_other_than_success_says_whether_another_try_helps(
    receiver: Receiver, status: int, permanent: bool, away: bool
) -> None:
    receiver.answers = [status]
    with pytest.raises(NotDelivered, match=f"{receiver.origin} answers {status}") as caught:
        post(receiver.url)
    assert (is_permanent(caught.value), isinstance(caught.value, ChannelAway)) == (permanent, away)
    assert len(receiver.requests) == 1, "another try is a matter of the delivery"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("location", f"{receiver.origin}/elsewhere")
        handler.send_header("content-length", "0")
        handler.end_headers()

    receiver.answers = [elsewhere, 200]
    with pytest.raises(DeliveryRefused, match="redirects are not followed"):
        post(receiver.url)
    assert [request.path for request in receiver.requests] == ["/events/of-the-shop"]


def test_a_receiver_that_does_not_answer_is_waited_for_as_long_as_the_spec_says(receiver: Receiver) -> None:
    receiver.answers = [silent(receiver)]
    with pytest.raises(ChannelAway, match=f"{receiver.origin} has not answered within 1 seconds"):
        post(receiver.url, timeout="1s")


def test_and_no_longer_than_the_run_may_take(receiver: Receiver) -> None:
    receiver.answers = [silent(receiver)]
    with pytest.raises(ChannelAway, match=r"has not answered within 0\.2 seconds"):
        post(receiver.url, timeout="1h", within=0.2)


def test_an_answer_that_trickles_is_not_waited_for(receiver: Receiver) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nserver: ")
        while not receiver.over.wait(0.05):
            handler.wfile.write(b"x")

    receiver.answers = [trickle]
    with pytest.raises(ChannelAway, match=r"has not answered within 0\.5 seconds"):
        post(receiver.url, within=0.5)


def test_a_long_answer_is_not_read(receiver: Receiver) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not receiver.over.is_set():
            handler.wfile.write(b"x" * 65536)

    receiver.answers = [endless]
    post(receiver.url)


def test_nobody_at_the_address_is_an_error_that_shows_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/path/of-the-shop"
        with pytest.raises(ChannelAway) as caught:
            post(url)
    assert str(caught.value) == f"{url.removesuffix('/path/of-the-shop')} cannot be reached: Connection refused"


def test_a_receiver_that_hangs_up_is_away(receiver: Receiver) -> None:
    receiver.answers = [lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)]
    with pytest.raises(ChannelAway, match="cannot be reached: "):
        post(receiver.url)


def test_passwords_of_a_netrc_file_stay_at_home(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password geheim\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    post(receiver.url)
    assert "authorization" not in receiver.requests[0].headers


def certificate(folder: Path) -> Path:
    """Key and certificate for 127.0.0.1 that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_https_wants_a_certificate_that_this_machine_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with receiving(context) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/events"
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
        with pytest.raises(ChannelAway, match="certificate verify failed"):
            post(url)
        assert receiver.requests == []
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(path))
        post(url)
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("content", "mode", "rule"),
    [
        (SECRET, 0o666, "may be written by every account"),
        ("fifteen bytes..", 0o600, "must name a secret of at least 16 bytes"),
        ("whsec_Zmlmd", 0o600, "must name a secret that is base64 behind whsec_"),
        ("whsec_AAAA!AAAA!AAAA!AAAA!AAAA!AAAA", 0o600, "must name a secret that is base64 behind whsec_"),
        ("whsec_" + "é" * 24, 0o600, "must name a secret that is base64 behind whsec_"),
        ("whsec_" + "AAAA" * 5, 0o600, "must name a secret of at least 16 bytes"),
        (f"{SECRET}\n{SECRET}", 0o600, "must hold the secret in one line"),
    ],
)
def test_a_secret_that_is_none_is_refused_without_a_word_of_it(
    receiver: Receiver, tmp_path: Path, content: str, mode: int, rule: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"pipeline shop: notify\.webhook\.secret_file: {rule}") as caught:
        post(receiver.url, secret_file=str(path))
    assert content not in str(caught.value)
    assert (receiver.requests, is_permanent(caught.value)) == ([], True)


def test_a_secret_that_is_not_there_sends_nothing_unsigned(receiver: Receiver, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"notify\.webhook\.secret_env: is not set .*, nor is NO_SUCH_SECRET_FILE"):
        post(receiver.url, secret_env="NO_SUCH_SECRET")
    with pytest.raises(ConfigError, match=r"notify\.webhook\.secret_file: cannot be read: No such file"):
        post(receiver.url, secret_file=str(tmp_path / "nowhere"))
    assert receiver.requests == []


def test_no_log_has_the_secret_or_the_signature(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    with caplog.at_level(logging.DEBUG):
        post(receiver.url, secret_env="SHOP_SECRET")
    signature = receiver.requests[0].headers["webhook-signature"]
    assert caplog.records, "the library says something at this level"
    assert not any(text in caplog.text for text in (SECRET, signature))
