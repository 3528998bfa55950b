"""Translates pip's environment variables to those of uv.

uv does not read pip's settings (see its page "Compatibility with pip"), so that it would find no packages
on a machine that is set up for pip. Only variables are translated, not pip's configuration files. A
variable of uv that the user set takes precedence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IndexSettings", "from_environment"]

# pip's variable, uv's variable, and variables that take precedence if the user set them. The values are
# lists separated by spaces in pip and in uv, or single values.
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
# They would lead uv to another interpreter or folder than the environment's, or change its output, which
# is parsed for errors.
_REMOVED = (
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
    """The environment variables for uv, and options of ``uv pip install`` that have no variable.

    ``constraints``, ``build_constraints`` and ``find_links`` are options and not variables: an option
    on uv's command line hides the variable, and dlb adds its own values to the user's.
    """

    environ: dict[str, str]
    constraints: tuple[str, ...] = ()
    build_constraints: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False


def from_environment(environ: Mapping[str, str]) -> IndexSettings:
    """The settings for uv from the user's environment variables, those of pip included."""
    # An empty variable means that it is not set. uv reads some as a value, and refuses it.
    result = {
        key: value
        for key, value in environ.items()
        if key not in _REMOVED and (value or not key.startswith("UV_"))
    }
    result.update({"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_NO_WRAP": "1"})

    def set_default(key: str, value: str, *overriding: str) -> None:
        if value and not any(result.get(name) for name in (key, *overriding)):
            result[key] = value

    if environ.get("PIP_EXTRA_INDEX_URL") and not environ.get("UV_EXTRA_INDEX_URL"):
        # pip uses the best version of all indexes. uv by default stops at the first index that has
        # the package in any version. A setting for pip keeps pip's meaning.
        set_default("UV_INDEX_STRATEGY", "unsafe-best-match", "UV_INDEX")
    for pip, uv, overriding in _SAME_VALUE:
        set_default(uv, " ".join(environ.get(pip, "").split()), *overriding)
    # uv separates these values by commas.
    set_default("UV_FIND_LINKS", ",".join(environ.get("PIP_FIND_LINKS", "").split()))
    if _is_true(environ.get("PIP_PRE", "")):
        set_default("UV_PRERELEASE", "allow")
    if _is_true(environ.get("DLB_OFFLINE", "")):
        set_default("UV_OFFLINE", "1")
    if environ.get("PIP_KEYRING_PROVIDER") == "subprocess":
        set_default("UV_KEYRING_PROVIDER", "subprocess")
    certificates = environ.get("PIP_CERT", "")
    variable = "SSL_CERT_DIR" if certificates and Path(certificates).is_dir() else "SSL_CERT_FILE"
    set_default(variable, certificates, *_CERTIFICATES)
    seconds = environ.get("PIP_DEFAULT_TIMEOUT") or environ.get("PIP_TIMEOUT") or ""
    set_default(_TIMEOUTS[0], _whole_seconds(seconds), *_TIMEOUTS)

    # uv has no variable UV_NO_INDEX, but users may expect it.
    no_index = environ.get("UV_NO_INDEX") or environ.get("PIP_NO_INDEX") or ""
    return IndexSettings(
        constraints=tuple(result.pop("UV_CONSTRAINT", "").split()),
        build_constraints=tuple(result.pop("UV_BUILD_CONSTRAINT", "").split()),
        find_links=tuple(filter(None, result.pop("UV_FIND_LINKS", "").split(","))),
        no_index=_is_true(no_index),
        environ=result,
    )


def _is_true(text: str) -> bool:
    """Whether pip treats this value of a flag as true."""
    return text.strip().lower() in {"1", "on", "t", "true", "y", "yes"}


def _whole_seconds(text: str) -> str:
    """Whole seconds for uv, rounded up from pip's value; "" if that is not a positive number."""
    try:
        seconds = float(text)
    except ValueError:
        return ""
    return str(math.ceil(seconds)) if math.isfinite(seconds) and seconds > 0 else ""
