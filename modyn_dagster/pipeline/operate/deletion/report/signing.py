"""Signatures of reports: DSSE envelopes (https://github.com/secure-systems-lab/dsse) with a local Ed25519 key (RFC 8032).

The envelope's payload is an in-toto statement (v1) whose subjects are the files of the report with their SHA-256. An envelope is
written in one form only, so that a change of any of its bytes is found.
"""

import base64
import binascii
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.durability.names import temporary_name
from modyn_dagster.errors import ReportChanged, StorageError
from modyn_dagster.private_files import make_home
from modyn_dagster.storage import atomic_write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "urn:modyn-dagster:deletion-report:1"
#: No envelope of ours is longer.
_MOST_BYTES: Final = 65_536
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def key_path(home: Path) -> Path:
    """Path of the private key of a home."""
    return home / "deletions" / "signing_key.pem"


def signing_key(home: Path) -> "Ed25519PrivateKey":
    """Read the key of a home, or make it. Of two processes that make it at the same time, both get the same one.

    Raises ``StorageError`` for a key that others can read, or that is no Ed25519 key, and ``WriteFailed``.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path = key_path(home)
    if not path.exists():
        make_home(home)
        content = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        own = temporary_name(path)
        with atomic_write(own, 0o600) as file:
            file.write(content)
        try:
            os.link(own, path)
        except FileExistsError:  # another process was first
            pass
        finally:
            own.unlink()
    return _private_key(path)


def home_key(home: Path) -> "Ed25519PublicKey":
    """Public half of the key of a home. Raises ``StorageError`` where there is none."""
    path = key_path(home)
    if not path.exists():
        raise StorageError(f"{path}: no key; give the public key of the one who signed the report with `--key FILE`")
    return _private_key(path).public_key()


def public_key(path: Path) -> "Ed25519PublicKey":
    """Read a public key (PEM). Raises ``StorageError``."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_content(path))
    except ValueError as error:
        raise StorageError(f"{path}: no public key in PEM; a report has it as public_key.pem") from error
    if not isinstance(key, Ed25519PublicKey):
        raise StorageError(f"{path}: must be an Ed25519 key, as reports are signed with")
    return key


def public_pem(key: "Ed25519PublicKey") -> bytes:
    """Public key as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: "Ed25519PublicKey") -> str:
    """Fingerprint of a key: hexadecimal SHA-256 of its 32 bytes."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def signed_envelope(subjects: Mapping[str, str], predicate: Mapping[str, Any], key: "Ed25519PrivateKey") -> bytes:
    """Sign files, by their names and hexadecimal SHA-256, and return the envelope."""
    named = [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()]
    statement = {"_type": _STATEMENT, "subject": named, "predicateType": _PREDICATE, "predicate": dict(predicate)}
    payload = _json(statement)
    return _envelope(payload, key_id(key.public_key()), key.sign(_authenticated(payload)))


def verified_subjects(path: Path, key: "Ed25519PublicKey") -> Mapping[str, str]:
    """Names and SHA-256 of the files that an envelope was signed for.

    Raises:
        ReportChanged: its content is no envelope of a report, was changed, or was signed by another key.
        StorageError: it cannot be read.
    """
    content = _content(path)
    try:
        fields = json.loads(content)
        [signature] = fields["signatures"]
        payload, signed = (base64.b64decode(text, validate=True) for text in (fields["payload"], signature["sig"]))
        signer = str(signature["keyid"])
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise ReportChanged(path, "no envelope of a report: it was cut off, changed, or is another file") from error
    if content != _envelope(payload, signer, signed):
        raise ReportChanged(path, "the envelope was changed since it was signed")
    if signer != key_id(key):
        raise ReportChanged(path, f"signed by the key {signer[:16]}…, expected {key_id(key)[:16]}…; see who made this report")
    return _subjects(path, _checked(path, payload, signed, key))


def _checked(path: Path, payload: bytes, signature: bytes, key: "Ed25519PublicKey") -> bytes:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, _authenticated(payload))
    except InvalidSignature:
        raise ReportChanged(path, "the signature does not fit the payload: one of them was changed") from None
    return payload


def _subjects(path: Path, payload: bytes) -> Mapping[str, str]:
    statement = json.loads(payload)
    if (statement.get("_type"), statement.get("predicateType")) != (_STATEMENT, _PREDICATE):
        raise ReportChanged(path, "signed, but not as a report of a deletion")
    return {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}


def _authenticated(payload: bytes) -> bytes:
    """Pre-authentication encoding of DSSE v1.

    >>> _authenticated(b"{}")
    b'DSSEv1 28 application/vnd.in-toto+json 2 {}'
    """
    return b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE.encode(), len(payload), payload)


def _envelope(payload: bytes, signer: str, signature: bytes) -> bytes:
    signatures = [{"keyid": signer, "sig": base64.b64encode(signature).decode()}]
    return _json({"payload": base64.b64encode(payload).decode(), "payloadType": _PAYLOAD_TYPE, "signatures": signatures}) + b"\n"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _private_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _content(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        rule = "may be opened by other accounts, who could sign reports with it; move it away, and the next report makes another"
        raise StorageError(f"{path}: {rule}, or close it: `chmod 600` (mode {mode:04o})")
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise StorageError(f"{path}: no private key in PEM without a password; restore it, or move it away") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StorageError(f"{path}: must be an Ed25519 key; move it away, and the next report makes one")
    return key


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ReportChanged(path, f"has more than {_MOST_BYTES} bytes, so it is no signature and no key of a report")
    return content
