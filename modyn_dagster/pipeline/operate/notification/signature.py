"""Signature of webhooks: HMAC-SHA256 with a secret that the receiver has too.

Source: Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks, symmetric signatures (``v1``).
"""

import base64
import hashlib
import hmac
import os
from typing import Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.private_files import read_secret, secret_setting
from modyn_dagster.spec.notification.channels import WebhookSpec

_PREFIX: Final = "whsec_"
#: Bytes of a key that is not guessed.
_SHORTEST: Final = 16


def webhook_key(spec: WebhookSpec, source: str) -> bytes | None:
    """Read the key that requests are signed with; None where the spec names no secret.

    Behind ``whsec_`` a secret is base64 of the key; any other text is the key itself, in UTF-8.

    Raises:
        ConfigError: there is no such secret, or none of at least 16 bytes. The error does not show it.
    """
    if spec.secret_file is not None:
        field, name = "notify.webhook.secret_file", spec.secret_file
        secret: str | None = read_secret(spec.secret_file, source=source, field=field)
    elif spec.secret_env is not None:
        field, name = "notify.webhook.secret_env", spec.secret_env
        secret = secret_setting(os.environ, spec.secret_env)
    else:
        return None
    if secret is None:
        raise ConfigError(source, field, name, f"is not set in the environment of this process, nor is {name}_FILE")
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True) if secret.startswith(_PREFIX) else secret.encode()
    except ValueError:
        raise ConfigError(source, field, name, f"must name a secret that is base64 behind {_PREFIX}") from None
    if len(key) < _SHORTEST:
        rule = f"must name a secret of at least {_SHORTEST} bytes; `openssl rand -hex 24` makes one"
        raise ConfigError(source, field, name, rule)
    return key


def signed_headers(key: bytes | None, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers of a webhook: its id, its time in Unix seconds, and with a key ``v1,`` and its signature.

    The signature is base64 of HMAC-SHA256 over ``<id>.<timestamp>.<body>``.

    >>> signed_headers(b"k" * 24, "evt_1", 1731705121, b"{}")["webhook-signature"]
    'v1,+XuMHBSymgR98s2YTlxqspaXs1hbIhJHbdJ3dPZVVpA='
    """
    headers = {"webhook-id": event_id, "webhook-timestamp": str(timestamp)}
    if key is not None:
        content = f"{event_id}.{timestamp}.".encode() + body
        signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        headers["webhook-signature"] = f"v1,{signature}"
    return headers
