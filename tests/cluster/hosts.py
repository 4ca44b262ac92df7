"""Hosts made of namespaces of this machine: each has a network, a name and folders of its own, and a cable that can be pulled.

They are joined by a bridge, on which this machine is a host too. They share processor, clock, processes and all other folders.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

#: A host's name leads to its loopback interface, as Debian's installer writes it.
NAMES: Final = "127.0.0.1 localhost\n127.0.1.1 {name}\n"
#: Name of the host, its file of names, and pairs of folders up to `--`: the second of a pair has the content of the first there.
ENTER: Final = """
set -eu
echo "$1" >/proc/sys/kernel/hostname
mount --bind "$2" /etc/hosts
shift 2
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"
"""

needs_hosts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None,
    reason="network namespaces need root and iproute2: apt-get install iproute2",
)


@dataclass
class Host:
    """A host of a network.

    Attributes:
        name: of the host, of its network namespace and of both ends of its cable.
        address: in the network.
        files: folder of its files.
        folders: folders of its own, by the place where it sees them.
    """

    name: str
    address: str
    files: Path
    folders: dict[Path, Path] = field(default_factory=dict)

    def own(self, place: Path) -> None:
        """Give it an empty folder of its own at the place of another one, for what starts there from now on."""
        if place not in self.folders:
            self.folders[place] = self.files / str(len(self.folders))
            self.folders[place].mkdir()

    def command(self, *command: str) -> Sequence[str]:
        """Command that runs another one there."""
        pairs = [str(path) for place, own in self.folders.items() for path in (own, place)]
        enter = ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", ENTER, "sh"]
        return [*enter, self.name, str(self.files / "names"), *pairs, "--", *command]

    def cut_off(self) -> None:
        """Pull its cable: nothing ends there, and nobody is told."""
        _ip("link", "set", self.name, "down")

    def join(self) -> None:
        """Put the cable in again."""
        _ip("link", "set", self.name, "up")


@dataclass
class Network:
    """Hosts, and the address of this machine among them."""

    address: str
    hosts: Sequence[Host]


@contextmanager
def network_of(size: int) -> Iterator[Network]:
    """A network of so many hosts, of which nothing is left in the end."""
    mark, subnet = secrets.token_hex(3), f"10.{64 + secrets.randbelow(60)}.{secrets.randbelow(256)}"
    bridge, names = f"modyn{mark}", [f"host{mark}{place}" for place in range(1, size + 1)]
    scratch = Path(tempfile.mkdtemp(prefix="modyn-hosts-"))
    hosts: list[Host] = []
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{subnet}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for place, name in enumerate(names, start=1):
            host = Host(name, f"{subnet}.{place}", scratch / name)
            host.files.mkdir()
            (host.files / "names").write_text(NAMES.format(name=name))
            hosts.append(host)
            _connect(host, bridge)
        yield Network(f"{subnet}.254", hosts)
    finally:
        for host in hosts:
            # Its end of the cable goes with the namespace, and the other one with that.
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", host.name)
            with suppress(subprocess.CalledProcessError):
                _ip("link", "delete", host.name)
        _ip("link", "delete", bridge)
        shutil.rmtree(scratch)


def _connect(host: Host, bridge: str) -> None:
    _ip("netns", "add", host.name)
    _ip("link", "add", host.name, "type", "veth", "peer", "name", "cable", "netns", host.name)
    _ip("link", "set", host.name, "master", bridge, "up")
    inside = ["-n", host.name]
    _ip(*inside, "address", "add", f"{host.address}/24", "dev", "cable")
    for interface in ("lo", "cable"):
        _ip(*inside, "link", "set", interface, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
