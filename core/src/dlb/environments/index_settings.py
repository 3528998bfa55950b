"""Where uv looks for packages: pip's environment variables said in uv's.

uv does not read pip's settings (its page "Compatibility with pip"), so a machine set up for pip
would find nothing. Only variables are translated, not pip's configuration files. A variable of
uv's own that the user set always wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IndexSettings", "from_environment"]

# pip's variable, uv's, and those of the user's that make the translation void. All are lists
# separated by spaces in pip and in uv, or single values.
_SAME_VALUE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", ("UV_INDEX_URL",)),
    ("PIP_EXTRA_INDEX_URL", "UV_INDEX", ("UV_EXTRA_INDEX_URL",)),
    ("PIP_CONSTRAINT", "UV_CONSTRAINT", ()),
    ("PIP_BUILD_CONSTRAINT", "UV_BUILD_CONSTRAINT", ()),
    ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST", ()),
    ("PIP_RETRIES", "UV_HTTP_RETRIES", ()),
    ("PIP_CLIENT_CERT", "SSL_CLIENT_CERT", ()),
    ("PIP_PROXY", "ALL_PROXY", ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "all_proxy")),
)
_TIMEOUTS = ("UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
# They would point uv at an interpreter or a folder that is not the environment being made, or
# change what is printed, which is read for the error.
_UNWANTED = (
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "UV_WORKING_DIR",
    "VIRTUAL_ENV",
)


@dataclass(frozen=True)
class IndexSettings:
    """The environment to run uv in, and the options of ``uv pip install`` that no variable has.

    ``constraints``, ``build_constraints`` and ``find_links`` were taken out of the environment: an
    option on uv's command line hides the variable, and ours have to add to the user's.
    """

    environ: dict[str, str]
    constraints: tuple[str, ...] = ()
    build_constraints: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False


def from_environment(environ: Mapping[str, str]) -> IndexSettings:
    """Settings for uv from the user's environment variables, pip's among them."""
    result = {key: value for key, value in environ.items() if key not in _UNWANTED}
    result.update({"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_NO_WRAP": "1"})

    def offer(key: str, value: str, *void_with: str) -> None:
        if value and not any(result.get(other) for other in (key, *void_with)):
            result[key] = value

    if environ.get("PIP_EXTRA_INDEX_URL") and not environ.get("UV_EXTRA_INDEX_URL"):
        # pip takes the best version of all the indexes; uv by default stops at the first index
        # that has the package in any version. A setting written for pip has pip's meaning.
        offer("UV_INDEX_STRATEGY", "unsafe-best-match", "UV_INDEX")
    for pip, uv, void_with in _SAME_VALUE:
        offer(uv, " ".join(environ.get(pip, "").split()), *void_with)
    # uv separates this one by commas.
    offer("UV_FIND_LINKS", ",".join(environ.get("PIP_FIND_LINKS", "").split()))
    if _is_true(environ.get("PIP_PRE", "")):
        offer("UV_PRERELEASE", "allow")
    if _is_true(environ.get("DLB_OFFLINE", "")):
        offer("UV_OFFLINE", "1")
    if environ.get("PIP_KEYRING_PROVIDER") == "subprocess":
        offer("UV_KEYRING_PROVIDER", "subprocess")
    certificates = environ.get("PIP_CERT", "")
    place = "SSL_CERT_DIR" if certificates and Path(certificates).is_dir() else "SSL_CERT_FILE"
    offer(place, certificates, *_CERTIFICATES)
    seconds = environ.get("PIP_DEFAULT_TIMEOUT") or environ.get("PIP_TIMEOUT") or ""
    offer(_TIMEOUTS[0], _whole_seconds(seconds), *_TIMEOUTS)

    # uv has no such variable, but a user may well take it for one.
    no_index = environ.get("UV_NO_INDEX") or environ.get("PIP_NO_INDEX") or ""
    return IndexSettings(
        constraints=tuple(result.pop("UV_CONSTRAINT", "").split()),
        build_constraints=tuple(result.pop("UV_BUILD_CONSTRAINT", "").split()),
        find_links=tuple(filter(None, result.pop("UV_FIND_LINKS", "").split(","))),
        no_index=_is_true(no_index),
        environ=result,
    )


def _is_true(text: str) -> bool:
    """Whether pip takes this value of a flag for set."""
    return text.strip().lower() in {"1", "on", "t", "true", "y", "yes"}


def _whole_seconds(text: str) -> str:
    """pip allows fractions, uv only whole seconds; what is neither is left out."""
    try:
        seconds = float(text)
    except ValueError:
        return ""
    return str(math.ceil(seconds)) if math.isfinite(seconds) and seconds > 0 else ""
