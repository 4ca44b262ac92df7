"""Signatures of reports: any change is found, and keys are private."""

import base64
import hashlib
import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ReportChanged, StorageError
from modyn_dagster.pipeline.operate.deletion.report.content import FORMAT
from modyn_dagster.pipeline.operate.deletion.report.signing import (
    home_key,
    key_id,
    key_path,
    public_key,
    public_pem,
    signed_envelope,
    signing_key,
    verified_subjects,
)
from modyn_dagster.pipeline.operate.deletion.report.writing import ENVELOPE, PAGE, REPORT, verify_report
from tests.examples import examples

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
CONTENT = {REPORT: json.dumps({"format": FORMAT, "request": 1, "samples": 2}).encode(), PAGE: b"<html>a page</html>"}
quick = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write_signed(folder: Path, key: Ed25519PrivateKey = KEY) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    (folder / ENVELOPE).write_bytes(signed_envelope(digests, {"request": 1}, key))
    return folder


def test_an_untouched_report_is_what_was_signed(tmp_path: Path) -> None:
    folder = write_signed(tmp_path / "r")
    for path in (folder, folder / REPORT, folder / PAGE, folder / ENVELOPE):
        assert verify_report(path, PUBLIC).content["samples"] == 2


@quick
@given(name=st.sampled_from([REPORT, PAGE, ENVELOPE]), at=st.integers(0, 10_000), change=st.integers(1, 255))
def test_any_changed_byte_of_any_file_is_found(tmp_path: Path, name: str, at: int, change: int) -> None:
    folder = write_signed(tmp_path / "r")
    content = bytearray((folder / name).read_bytes())
    content[at % len(content)] ^= change
    (folder / name).write_bytes(content)
    with pytest.raises(ReportChanged, match=name):
        verify_report(folder, PUBLIC)


@quick
@given(name=st.sampled_from([REPORT, PAGE, ENVELOPE]), at=st.integers(0, 10_000), more=st.binary(max_size=3))
def test_any_byte_cut_off_or_put_in_is_found(tmp_path: Path, name: str, at: int, more: bytes) -> None:
    folder = write_signed(tmp_path / "r")
    content = (folder / name).read_bytes()
    at %= len(content)
    (folder / name).write_bytes(content[:at] + more + (content[at:] if more else b""))
    with pytest.raises(ReportChanged):
        verify_report(folder, PUBLIC)


def change_payload(envelope: dict[str, Any]) -> None:
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["request"] = 2
    envelope["payload"] = base64.b64encode(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()).decode()


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "payload": change_payload,
    "payload type": lambda envelope: envelope.update(payloadType="application/json"),
    "signature": lambda envelope: envelope["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()),
    "short signature": lambda envelope: envelope["signatures"][0].update(sig=""),
    "key id": lambda envelope: envelope["signatures"][0].update(keyid="0" * 64),
    "no signature": lambda envelope: envelope.update(signatures=[]),
    "two signatures": lambda envelope: envelope["signatures"].append(envelope["signatures"][0]),
    "another field": lambda envelope: envelope.update(note="hello"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_field_of_the_envelope_is_found(tmp_path: Path, name: str) -> None:
    folder = write_signed(tmp_path / "r")
    envelope = json.loads((folder / ENVELOPE).read_bytes())
    CHANGES[name](envelope)
    (folder / ENVELOPE).write_bytes(json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    with pytest.raises(ReportChanged):
        verify_report(folder, PUBLIC)


def test_a_report_signed_by_another_key_is_refused_with_both_named(tmp_path: Path) -> None:
    other = Ed25519PrivateKey.generate()
    folder = write_signed(tmp_path / "r", other)
    with pytest.raises(ReportChanged) as error:
        verify_report(folder, PUBLIC)
    assert key_id(other.public_key())[:16] in str(error.value)
    assert key_id(PUBLIC)[:16] in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b'"text"', b"{}", b'{"payload": 1}', b"[" * 30_000, b"\xff\xfe", b"x" * 70_000, bytes(65_537)],
    ids=["empty", "cut off", "null", "list", "text", "object", "number", "nested", "no text", "huge", "zeros"],
)
def test_an_envelope_that_is_none_of_ours_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    folder = write_signed(tmp_path / "r")
    (folder / ENVELOPE).write_bytes(content)
    with pytest.raises(ReportChanged, match=ENVELOPE):
        verify_report(folder, PUBLIC)


@pytest.mark.parametrize("name", [REPORT, PAGE, ENVELOPE])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_signed(tmp_path / "r")
    (folder / name).unlink()
    with pytest.raises(ReportChanged, match=f"{name}: is missing"):
        verify_report(folder, PUBLIC)


@pytest.mark.parametrize("name", [REPORT, PAGE, ENVELOPE])
def test_a_file_that_cannot_be_read_is_no_changed_report(tmp_path: Path, name: str) -> None:
    folder = write_signed(tmp_path / "r")
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(StorageError, match=f"{name}: cannot be read") as error:
        verify_report(folder, PUBLIC)
    assert not isinstance(error.value, ReportChanged)


@pytest.mark.parametrize("name", ["report (1).html", "report.JSON", "public_key.pem", "nothing"])
def test_another_file_beside_a_report_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    folder = write_signed(tmp_path / "r")
    if name != "nothing":
        (folder / name).write_bytes(CONTENT[PAGE].replace(b"a page", b"nothing was found"))
    with pytest.raises(ReportChanged, match="name its folder"):
        verify_report(folder / name, PUBLIC)


def test_a_huge_report_is_refused_without_being_read_into_memory(tmp_path: Path) -> None:
    folder = write_signed(tmp_path / "r")
    with (folder / REPORT).open("wb") as file:
        file.truncate(200 << 20)
    with pytest.raises(ReportChanged, match="changed since it was signed"):
        verify_report(folder, PUBLIC)


@pytest.mark.parametrize("names", [[], [REPORT], [PAGE], [REPORT, PAGE, "other.txt"]], ids=len)
def test_a_signature_of_other_files_by_the_same_key_is_no_report(tmp_path: Path, names: list[str]) -> None:
    folder = write_signed(tmp_path / "r")
    digests = {name: hashlib.sha256(CONTENT.get(name, b"")).hexdigest() for name in names}
    (folder / "other.txt").write_bytes(b"")
    (folder / ENVELOPE).write_bytes(signed_envelope(digests, {}, KEY))
    with pytest.raises(ReportChanged, match="signed for"):
        verify_report(folder, PUBLIC)


def test_the_signature_is_that_of_dsse(tmp_path: Path) -> None:
    """Verified from the specification, without the code that signs."""
    folder = write_signed(tmp_path / "r")
    envelope = json.loads((folder / ENVELOPE).read_bytes())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
    signed = b"DSSEv1 " + str(len(kind)).encode() + b" " + kind.encode() + b" " + str(len(payload)).encode() + b" " + payload
    PUBLIC.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)


def test_the_key_is_made_once_closed_to_others_and_fits_its_public_half(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = signing_key(home)
    assert stat.S_IMODE(key_path(home).stat().st_mode) == 0o600
    assert signing_key(home).private_bytes_raw() == first.private_bytes_raw()
    assert home_key(home).public_bytes_raw() == first.public_key().public_bytes_raw()
    assert [path.name for path in key_path(home).parent.iterdir()] == [key_path(home).name]
    (tmp_path / "public.pem").write_bytes(public_pem(first.public_key()))
    assert public_key(tmp_path / "public.pem").public_bytes_raw() == first.public_key().public_bytes_raw()


def test_processes_that_need_the_first_key_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: signing_key(tmp_path / "home").private_bytes_raw(), range(16)))
    assert len(set(keys)) == 1


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_signs_nothing(tmp_path: Path, mode: int) -> None:
    signing_key(tmp_path)
    key_path(tmp_path).chmod(mode)
    for use in (signing_key, home_key):
        with pytest.raises(StorageError, match=f"{mode:04o}"):
            use(tmp_path)


def test_without_a_key_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="--key"):
        home_key(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_key_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    signing_key(tmp_path)
    key_path(tmp_path).write_bytes(content)
    with pytest.raises(StorageError, match="move it away"):
        signing_key(tmp_path)
    (tmp_path / "public.pem").write_bytes(content)
    with pytest.raises(StorageError, match="public"):
        public_key(tmp_path / "public.pem")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    other = generate_private_key(SECP256R1())
    signing_key(tmp_path)
    key_path(tmp_path).write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(StorageError, match="Ed25519"):
        signing_key(tmp_path)
    (tmp_path / "p.pem").write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(StorageError, match="Ed25519"):
        public_key(tmp_path / "p.pem")


def test_the_subjects_are_the_files_with_their_digests(tmp_path: Path) -> None:
    folder = write_signed(tmp_path / "r")
    assert verified_subjects(folder / ENVELOPE, PUBLIC) == {
        name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()
    }
