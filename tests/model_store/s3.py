"""An S3 server (moto) in a process of its own, by default on 127.0.0.1, which checks signatures, and what opens stores on it."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import s3fs

from modyn_dagster.model_store import ModelStore

#: Prints where it is and the keys of its one user, and ends with whoever holds its input open.
_SERVER = """
import json, sys
import boto3
from moto import settings
from moto.server import ThreadedMotoServer
host = sys.argv[1]
server = ThreadedMotoServer(host, 0, verbose=False)
server.start()
endpoint = f"http://{host}:{server.get_host_and_port()[1]}"
first = {"endpoint_url": endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "a", "region_name": "us-east-1"}
boto3.client("s3", **first).create_bucket(Bucket="models")
iam = boto3.client("iam", **first)
iam.create_user(UserName="trainer")
allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="trainer", PolicyName="s3", PolicyDocument=json.dumps(allowed))
key = iam.create_access_key(UserName="trainer")["AccessKey"]
settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
print(json.dumps({"endpoint": endpoint, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class S3:
    """A server with a bucket, and the keys of a user."""

    endpoint: str
    key: str
    secret: str

    @property
    def options(self) -> dict[str, Any]:
        """For fsspec. Every store gets connections and a cache of its own, as in another process."""
        return {"endpoint_url": self.endpoint, "key": self.key, "secret": self.secret, "skip_instance_cache": True}

    def fresh_url(self) -> str:
        """A URL in the bucket with no store yet."""
        return f"s3://models/{uuid.uuid4().hex}/store"

    def store(self, url: str) -> ModelStore:
        """As another process would open it."""
        return ModelStore(url, storage_options=self.options)

    def files(self) -> s3fs.S3FileSystem:
        """File system of the server, past the store."""
        return s3fs.S3FileSystem(**self.options)

    def but(self, **other: str) -> "S3":
        """The same with another key, secret or endpoint."""
        return replace(self, **other)


@contextmanager
def running(host: str = "127.0.0.1") -> Iterator[S3]:
    """A server at an address of this machine that ends with the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _SERVER, host], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield S3(**json.loads(server.stdout.readline()))
        finally:
            server.kill()
