"""Data sets by name: those of dlb's catalogue, and those of plugins."""

from __future__ import annotations

from dlb.data import catalogue
from dlb.data.description import DataSetDescription
from dlb.data.local import LOCAL
from dlb.errors import UnknownNameError
from dlb_worker.plugins import load_plugins

__all__ = ["data_set", "data_sets"]


def data_sets() -> dict[str, DataSetDescription]:
    """Every data set by name, the default one first. A plugin cannot replace one of the catalogue."""
    descriptions = {name: catalogue.describe(name) for name in catalogue.data_set_names()}
    for plugin_data_sets in load_plugins().hook.dlb_datasets():
        for description in plugin_data_sets:
            descriptions.setdefault(description.name, description)
    return descriptions


def data_set(name: str) -> DataSetDescription:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    descriptions = data_sets()
    if name not in descriptions:
        raise UnknownNameError("data set", name, [*descriptions, *LOCAL])
    return descriptions[name]
