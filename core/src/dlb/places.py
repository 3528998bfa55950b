"""The folders that dlb uses on this machine.

``DLB_HOME`` moves all of them below one folder. Data sets are searched in ``DLB_DATA_DIR`` first.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["data_home", "environments_home", "home"]


def home() -> Path:
    """The folder that holds environments and downloaded data sets."""
    chosen = os.environ.get("DLB_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("dlb", appauthor=False))


def environments_home() -> Path:
    """The folder with one virtual environment per adapter."""
    return home() / "environments"


def data_home() -> Path:
    """The folder that holds downloaded data sets."""
    return home() / "data"
