"""Workers of other hosts: what crosses is carried by their connection, and nothing of it stays."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from dlb_process import Dlb

#: What ssh does with the words of a command: it joins them, and a shell elsewhere runs them in an environment
#: of its own.
AS_SSH = "sh -c 'exec env -i sh -c \"$*\"' sh"


@pytest.fixture(
    params=["a folder of its own", "a command like ssh", "a network and a disk of its own"]
)
def hosts(request: pytest.FixtureRequest, dlb: Dlb) -> Iterator[list[str]]:
    """Two hosts: what tells them from this machine."""
    if "network" not in request.param:
        command = AS_SSH if "ssh" in request.param else "env"
        yield [f"127.0.0.1={command}", f"127.0.0.1={command} env TMPDIR={dlb.folder}"]
        return
    if sys.platform != "linux" or os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need Linux, root and iproute2")
    name = f"dlb{os.getpid() % 100000}"
    subnet = f"10.{os.getpid() % 250}.77"
    #: Nothing that this machine has in the folder is there.
    hide = f"unshare -m sh -c 'mount -t tmpfs none {dlb.folder} && cd / && exec \"$@\"' sh"
    made = [
        f"link add {name} type bridge",
        f"addr add {subnet}.254/24 dev {name}",
        f"link set {name} up",
    ]
    for number in (1, 2):
        there = f"{name}-{number}"
        made += [
            f"netns add {there}",
            f"link add {there} type veth peer name eth0 netns {there}",
            f"link set {there} master {name} up",
            f"-n {there} addr add {subnet}.{number}/24 dev eth0",
            f"-n {there} link set eth0 up",
            f"-n {there} link set lo up",
        ]
    try:
        for words in made:
            done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"this system makes no network namespaces: {done.stderr.strip()}")
        yield [f"{subnet}.{n}=ip netns exec {name}-{n} {hide}" for n in (1, 2)]
    finally:
        for words in (f"netns del {name}-1", f"netns del {name}-2", f"link del {name}"):
            subprocess.run(["ip", *words.split()], capture_output=True)


def test_files_are_carried_to_workers_of_other_hosts(dlb: Dlb, hosts: list[str]) -> None:
    named = [word for host in hosts for word in ("--host", host)]
    ended = dlb.run("--workers", 2, "--strategy", "example_sync", *named, "--json")
    assert ended.status == 0, ended.err
    (record,) = dlb.records().values()
    assert record["proof"] == "proven" and record["options"]["hosts"] == hosts
    # Workers have removed what came to them.
    assert not list(dlb.folder.rglob("dlb-carried-*"))


def test_no_list_of_processes_shows_the_token(dlb: Dlb) -> None:
    """Anybody can read the words of a command, and the environment that a command such as ssh passes on."""
    seen = dlb.folder / "seen"
    shown = f'sh -c \'echo "$*" >{seen}; env >>{seen}; exec "$@"\' sh'
    host = f"127.0.0.1={AS_SSH} {shlex.quote(shown)}"
    ended = dlb.run("--workers", 1, "--strategy", "example_sync", "--host", host)
    assert ended.status == 0, ended.err
    assert "dlb_worker -" in seen.read_text() and "DLB_" not in seen.read_text()


def test_a_command_that_passes_nothing_on_is_named(dlb: Dlb) -> None:
    host = "127.0.0.1=sh -c 'exec env -i \"$@\" </dev/null' sh"
    ended = dlb.run("--workers", 1, "--strategy", "example_sync", "--host", host)
    assert ended.status == 1
    assert "the standard input is empty; the command of a --host must pass it on" in ended.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--host", "10.0.0.1"), "--host 10.0.0.1 needs a --strategy"),
        (("--strategy", "example_sync", "--host", "node1"), "host node1: Expected 4 octets"),
        (("--strategy", "example_sync", "--host", "10.0.0.1='x"), "No closing quotation"),
    ],
)
def test_what_is_no_host(dlb: Dlb, words: tuple[str, ...], says: str) -> None:
    ended = dlb.run(*words)
    assert ended.status == 2 and says in ended.complaint
