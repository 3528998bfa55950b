"""Data sets by name: dlb's own, and those that plugins bring."""

from __future__ import annotations

from dlb.data import catalogue
from dlb.data.description import DataSetDescription
from dlb.data.local import LOCAL
from dlb.errors import UnknownNameError
from dlb_worker.plugins import load_plugins

__all__ = ["data_set", "data_sets"]


def data_sets() -> dict[str, DataSetDescription]:
    """Every data set by name, the default one first; dlb's own names are not given away."""
    found = {name: catalogue.describe(name) for name in catalogue.data_set_names()}
    for some in load_plugins().hook.dlb_datasets():
        for one in some:
            found.setdefault(one.name, one)
    return found


def data_set(name: str) -> DataSetDescription:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    found = data_sets()
    if name not in found:
        raise UnknownNameError("data set", name, [*found, *LOCAL])
    return found[name]
