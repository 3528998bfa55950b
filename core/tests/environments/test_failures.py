"""What uv says, and what the user is told. The outputs were printed by uv."""

from __future__ import annotations

import pytest

from dlb.environments.failures import condense, explain

UNKNOWN = """\
warning: Failed to inspect Python interpreter from search path at `/shims/python3.10`
  cause: Querying Python failed with exit status exit status: 127
Using Python 3.11.7 environment at: v1
error: No solution found when resolving dependencies
  cause: Because dlb-nowhere was not found in the package registry and you require dlb-nowhere, we \
can conclude that your requirements are unsatisfiable.
"""
UNKNOWN_OLDER = """\
  \xd7 No solution found when resolving dependencies:
  ╰─▶ Because dlb-nowhere was not found in the package registry and you require
      dlb-nowhere, we can conclude that your requirements are unsatisfiable.
"""
OFFLINE = """\
error: No solution found when resolving dependencies
  cause: Because colorama was not found in the cache and you require colorama, we can conclude \
that your requirements are unsatisfiable.

hint: Packages were unavailable because the network was disabled. When the network is disabled, \
registry packages may only be read from the cache.
"""
PROXY = """\
error: Request failed after 3 retries in 7.3s
  cause: Failed to fetch: https://index.example/simple/colorama/
  cause: error sending request for url (https://index.example/simple/colorama/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
FORBIDDEN = """\
error: Failed to fetch: `https://index.example/simple/colorama/`
  cause: HTTP status client error (403 Forbidden) for url (https://index.example/simple/colorama/)
"""
SPACE = """\
error: Failed to install: packaging-26.3-py3-none-any.whl (packaging==26.3)
  cause: failed to copy file: No space left on device (os error 28)
"""
NO_PYTHON = """\
error: No interpreter found for Python >=3.4, <3.5 in managed installations or search path
"""
NO_DOWNLOAD = """\
error: Request failed after 3 retries in 6.9s
  cause: Failed to download `https://pythons.example/cpython-3.13.18.tar.gz`
  cause: tcp connect error
"""
BUILD = """\
error: Failed to build `chainer==7.8.1`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta:__legacy__.build_wheel` failed (exit status: 1)

         [stderr]
         Traceback (most recent call last):
           File "<string>", line 14, in <module>
         ModuleNotFoundError: No module named 'pkg_resources'

hint: This usually indicates a problem with the package or the build environment.
"""


@pytest.mark.parametrize(
    ("output", "making", "why", "remedy"),
    [
        (UNKNOWN, False, "dlb-nowhere was not found in the package registry", "--from"),
        (UNKNOWN_OLDER, False, "dlb-nowhere was not found in the package registry", "--from"),
        (OFFLINE, False, "no network: could not reach the package index", "PIP_FIND_LINKS"),
        (OFFLINE, False, "no network: could not reach the package index", "unset DLB_OFFLINE"),
        (
            PROXY,
            False,
            "no network: could not reach index.example",
            "the connection to index.example",
        ),
        (PROXY, False, "no network: could not reach index.example", "--from"),
        (
            PROXY.replace("index.example", "download.pytorch.org"),
            False,
            "pytorch.org",
            "UV_TORCH_BACKEND",
        ),
        (FORBIDDEN, False, "403 Forbidden", "create it again"),
        (SPACE, False, "no space left", "DLB_HOME"),
        (SPACE, True, "no space left", "DLB_HOME"),
        (NO_PYTHON, True, "no fitting Python (>=3.4,<3.5) on this machine (", "--python"),
        (NO_DOWNLOAD, True, "downloading one failed", "--python"),
        (BUILD, False, "ModuleNotFoundError: No module named 'pkg_resources'", "create it again"),
        ("", False, "no reason was given", "create it again"),
    ],
)
def test_explained(output: str, making: bool, why: str, remedy: str) -> None:
    said = explain(output, making=making, python=">=3.4,<3.5", distribution="dlb-nowhere")
    assert why in said[0]
    assert remedy in said[1]
    assert "\n" not in "".join(said)


def test_the_nearest_name_is_proposed() -> None:
    output = UNKNOWN.replace("dlb-nowhere", "dlb-trch")
    remedy = explain(output, making=False, python=">=3.10", distribution="dlb-trch")[1]
    assert remedy.startswith("did you mean 'torch'?")


def test_condensed_to_one_line() -> None:
    assert condense(BUILD) == (
        "Failed to build `chainer==7.8.1`; The build backend returned an error; "
        "ModuleNotFoundError: No module named 'pkg_resources'"
    )
    assert condense(UNKNOWN).startswith("No solution found when resolving dependencies; Because ")
    assert len(condense("error: " + "x" * 1000)) == 400
