"""JSON Schema of the part of the Compose Specification that compose.yaml uses, as strict as its text; any other key is an error.

Written from the specification's pages on services, networks, volumes and secrets, for no installed package has its own schema.
"""

from typing import Any, Final

TEXT: Final = {"type": "string", "minLength": 1}
TEXTS: Final = {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True}
COMMAND: Final = {"type": "array", "items": TEXT, "minItems": 1}
DURATION: Final = {"type": "string", "pattern": r"^(\d+h)?(\d+m)?(\d+s)?$", "minLength": 2}
SIZE: Final = {"type": "string", "pattern": r"^\d+[kmg]$"}
NAME: Final = {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]*$"}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """Mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def mapping(values: Any, keys: Any = NAME) -> dict[str, Any]:
    """Mapping of names to values of one form."""
    return {"type": "object", "additionalProperties": values, "propertyNames": keys, "minProperties": 1}


HEALTH: Final = closed(
    ["test", "interval", "timeout", "retries"],
    test={"type": "array", "items": TEXT, "prefixItems": [{"enum": ["CMD"]}], "minItems": 2},
    interval=DURATION,
    timeout=DURATION,
    start_period=DURATION,
    retries={"type": "integer", "minimum": 1},
)
VOLUME: Final = closed(
    ["type", "source", "target"],
    type={"enum": ["volume", "bind"]},
    source=TEXT,
    target={"type": "string", "pattern": "^/"},
    read_only={"type": "boolean"},
)
VARIABLE: Final = {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"}
CONDITIONS: Final = ["service_started", "service_healthy", "service_completed_successfully"]
SERVICE: Final = closed(
    ["image"],
    image=TEXT,
    build=closed(["context"], context=TEXT, args=mapping(TEXT, VARIABLE)),
    hostname=NAME,
    init={"type": "boolean"},
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
    stop_grace_period=DURATION,
    read_only={"type": "boolean"},
    tmpfs=TEXTS,
    cap_drop=TEXTS,
    security_opt=TEXTS,
    shm_size=SIZE,
    command=COMMAND,
    environment=mapping(TEXT, VARIABLE),
    secrets=TEXTS,
    volumes={"type": "array", "items": VOLUME, "minItems": 1},
    networks=TEXTS,
    # Never a port of all addresses.
    ports={"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:(\d+|\$\{[A-Z_]+:-\d+\}):\d+$"}},
    healthcheck=HEALTH,
    profiles=TEXTS,
    deploy=closed(["replicas"], replicas={"type": "integer", "minimum": 1}),
    depends_on=mapping(closed(["condition"], condition={"enum": CONDITIONS})),
)
COMPOSE: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **closed(
        ["name", "services", "volumes", "networks", "secrets"],
        name=NAME,
        services=mapping(SERVICE),
        volumes=mapping({"type": "null"}),
        networks=mapping({"anyOf": [{"type": "null"}, closed(["internal"], internal={"type": "boolean"})]}),
        secrets=mapping(closed(["file"], file=TEXT)),
    ),
    # Extensions: parts that others refer to.
    "patternProperties": {"^x-": {}},
}
