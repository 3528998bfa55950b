"""Data of the user's own, which a path names: what can be read has its reader in a package."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dlb.data.locate import own_folders
from dlb.data.source import ModelSignature, Source
from dlb.errors import PluginError
from dlb_worker.plugins import guarded, load_plugins

if TYPE_CHECKING:
    from dlb_graph.workload import Data

__all__ = ["OwnData", "own_data", "own_kinds"]


@dataclass(frozen=True)
class OwnData:
    """A kind of data that are the user's own.

    Attributes:
        title: what ``data.path`` must name.
        open: from a workload's data, ``train`` or ``test``, and the model's input and labels, the samples. It
            raises RequestError if the path is missing or the model cannot read such data, and DataError if
            the path cannot be read.
        folder: below ``DLB_DATA_DIR``, where they are if no path is given; empty if they need one.
        source: where they can be had; empty if they are made by the user.
    """

    title: str
    open: Callable[[Data, str, ModelSignature], Source]
    folder: str = ""
    source: str = ""

    def find(self) -> Path | None:
        """Their folder, if it is known without a path."""
        folders = own_folders(self.folder) if self.folder else []
        return next((folder for folder in folders if folder.is_dir()), None)

    @property
    def alternative(self) -> str:
        """How to provide them without a path, for messages; empty if there is no such way."""
        return (
            f"; or put it ({self.source}) at {self.folder}/ in the folder DLB_DATA_DIR"
            if self.folder
            else ""
        )


def own_kinds() -> Collection[str]:
    """The names of all kinds that can be read here."""
    return load_plugins().brought["dlb_own_data"].keys()


def own_data(kind: str) -> OwnData:
    """A kind by its name.

    Raises:
        PluginError: the package that brings it is broken.
    """
    plugin, target = load_plugins().brought["dlb_own_data"][kind]
    module, _, name = str(target).partition(":")
    with guarded(f"waiting for data '{kind}' of {plugin}", f"data '{kind}' of {plugin}"):
        found = getattr(import_module(module), name)
    if not isinstance(found, OwnData):
        raise PluginError(f"data '{kind}' of {plugin} are a {type(found).__name__}, not OwnData")
    return found
