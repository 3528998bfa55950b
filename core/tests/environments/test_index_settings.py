"""pip's settings, said in uv's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlb.environments.index_settings import from_environment

A, B = "https://a.example/simple", "https://b.example/simple"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"PIP_INDEX_URL": A}, {"UV_DEFAULT_INDEX": A}),
        ({"PIP_INDEX_URL": A, "UV_DEFAULT_INDEX": B}, {"UV_DEFAULT_INDEX": B}),
        ({"PIP_INDEX_URL": A, "UV_INDEX_URL": B}, {"UV_INDEX_URL": B}),
        (
            {"PIP_EXTRA_INDEX_URL": f"{A}\n {B}"},
            {"UV_INDEX": f"{A} {B}", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"PIP_EXTRA_INDEX_URL": A, "UV_INDEX": B}, {"UV_INDEX": B}),
        ({"PIP_EXTRA_INDEX_URL": A, "UV_EXTRA_INDEX_URL": B}, {"UV_EXTRA_INDEX_URL": B}),
        (
            {"PIP_EXTRA_INDEX_URL": A, "UV_INDEX_STRATEGY": "first-index"},
            {"UV_INDEX": A, "UV_INDEX_STRATEGY": "first-index"},
        ),
        ({"PIP_TRUSTED_HOST": "a  b"}, {"UV_INSECURE_HOST": "a b"}),
        ({"PIP_RETRIES": "7"}, {"UV_HTTP_RETRIES": "7"}),
        ({"PIP_DEFAULT_TIMEOUT": "180"}, {"UV_HTTP_TIMEOUT": "180"}),
        ({"PIP_TIMEOUT": "1.5"}, {"UV_HTTP_TIMEOUT": "2"}),
        ({"PIP_TIMEOUT": "soon"}, {}),
        ({"PIP_TIMEOUT": "nan"}, {}),
        ({"PIP_TIMEOUT": "5", "UV_REQUEST_TIMEOUT": "9"}, {"UV_REQUEST_TIMEOUT": "9"}),
        ({"PIP_PRE": "yes"}, {"UV_PRERELEASE": "allow"}),
        ({"PIP_PRE": "0"}, {}),
        ({"DLB_OFFLINE": "1"}, {"DLB_OFFLINE": "1", "UV_OFFLINE": "1"}),
        ({"DLB_OFFLINE": "0"}, {"DLB_OFFLINE": "0"}),
        ({"PIP_PRE": "1", "UV_PRERELEASE": "disallow"}, {"UV_PRERELEASE": "disallow"}),
        ({"PIP_CERT": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"PIP_CERT": "/ca.pem", "SSL_CERT_FILE": "/b.pem"}, {"SSL_CERT_FILE": "/b.pem"}),
        ({"PIP_CERT": "/ca.pem", "UV_SYSTEM_CERTS": "1"}, {"UV_SYSTEM_CERTS": "1"}),
        ({"PIP_CLIENT_CERT": "/me.pem"}, {"SSL_CLIENT_CERT": "/me.pem"}),
        ({"PIP_PROXY": A}, {"ALL_PROXY": A}),
        ({"PIP_PROXY": A, "HTTPS_PROXY": B}, {"HTTPS_PROXY": B}),
        ({"PIP_KEYRING_PROVIDER": "subprocess"}, {"UV_KEYRING_PROVIDER": "subprocess"}),
        ({"PIP_KEYRING_PROVIDER": "import"}, {}),
        ({"UV_PYTHON": "3.8", "VIRTUAL_ENV": "/v", "PYTHONPATH": "/p", "FORCE_COLOR": "1"}, {}),
        ({"UV_TORCH_BACKEND": "", "UV_INDEX": ""}, {}),
        ({"UV_TORCH_BACKEND": "cpu"}, {"UV_TORCH_BACKEND": "cpu"}),
        ({"PATH": "/bin"}, {"PATH": "/bin"}),
    ],
)
def test_variables(given: dict[str, str], expected: dict[str, str]) -> None:
    always = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_NO_WRAP": "1"}
    result = {k: v for k, v in from_environment(given).environ.items() if k not in given}
    kept = {k: v for k, v in from_environment(given).environ.items() if k in given}
    ours = {k: v for k, v in kept.items() if not k.startswith("PIP_")}
    assert {**result, **ours} == {**always, **expected}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"PIP_FIND_LINKS": "/a  https://b.example/"}, ("/a", "https://b.example/")),
        ({"UV_FIND_LINKS": "/a b,/c", "PIP_FIND_LINKS": "/d"}, ("/a b", "/c")),
        ({}, ()),
    ],
)
def test_find_links(given: dict[str, str], expected: tuple[str, ...]) -> None:
    settings = from_environment(given)
    assert settings.find_links == expected
    assert "UV_FIND_LINKS" not in settings.environ


def test_constraints_are_lists_of_files() -> None:
    settings = from_environment({"PIP_CONSTRAINT": "a.txt b.txt", "PIP_BUILD_CONSTRAINT": "c.txt"})
    assert settings.constraints == ("a.txt", "b.txt")
    assert settings.build_constraints == ("c.txt",)
    assert from_environment({"UV_CONSTRAINT": "u", "PIP_CONSTRAINT": "p"}).constraints == ("u",)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False)])
def test_no_index_is_an_option_of_uvs_not_a_variable(value: str, expected: bool) -> None:
    assert from_environment({"PIP_NO_INDEX": value}).no_index is expected


def test_a_folder_of_certificates(tmp_path: Path) -> None:
    settings = from_environment({"PIP_CERT": str(tmp_path)})
    assert settings.environ["SSL_CERT_DIR"] == str(tmp_path)
