"""What an environment has, as plain containers: adapters, strategies, plugins."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from typing import Any

from dlb.contract import AdapterDescription
from dlb.plugins import Plugins

__all__ = ["describe", "framework_version"]


def describe(plugins: Plugins) -> dict[str, Any]:
    """Adapters with their framework's version, strategies, plugins loaded and left out."""
    return {
        "adapters": [
            {**asdict(adapter), "framework_version": framework_version(adapter)}
            for adapter in plugins.adapters.values()
        ],
        "strategies": [asdict(strategy) for strategy in plugins.strategies()],
        "plugins": [plugin._asdict() for plugin in plugins.loaded],
        "broken": [plugin._asdict() for plugin in plugins.broken],
    }


def framework_version(adapter: AdapterDescription) -> str:
    """Version of the framework as installed, from metadata; empty where it is not."""
    for distribution in adapter.framework:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""
