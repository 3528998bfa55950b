"""What a worker reports about its own process."""

import os
import subprocess
import sys

import pytest

from dlb_worker.facts import worker_facts

LINUX = sys.platform.startswith("linux")


def test_variables_that_libraries_read(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    others = (
        "SECRET_TOKEN",
        "TF_VAR_password",
        "TF_CLI_CONFIG_FILE",
        "NVIDIA_API_KEY",
        "TORCH_TOKEN",
    )
    for name in others:
        monkeypatch.setenv(name, "no")
    found = worker_facts()["variables"]
    assert found["OMP_NUM_THREADS"] == "3" and found["MALLOC_TOP_PAD_"] == "1"
    assert not {*others, "PATH"} & set(found)


@pytest.mark.skipif(not LINUX, reason="only Linux shows the files of a process")
def test_the_allocator_is_the_c_librarys_unless_another_is_loaded():
    assert "C library" in worker_facts()["allocator"]


@pytest.mark.skipif(not LINUX, reason="only Linux shows the files of a process")
def test_another_allocator_is_named(tmp_path):
    """A mapped file of that name stands for one: what counts is what is in the process."""
    path = tmp_path / "libjemalloc.so.2"
    path.write_bytes(b"x" * 4096)
    script = (
        "import mmap, sys; from dlb_worker.facts import worker_facts\n"
        "file = open(sys.argv[1], 'rb')\n"
        "held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "print(worker_facts()['allocator'])"
    )
    out = subprocess.check_output([sys.executable, "-c", script, str(path)], env=dict(os.environ))
    assert out.decode().strip() == "libjemalloc.so.2"
