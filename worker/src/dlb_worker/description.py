"""What an environment has, as plain containers: adapters, strategies, plugins."""

from dataclasses import asdict
from typing import Any, Dict

import importlib_metadata

from dlb_worker.contract import AdapterDescription
from dlb_worker.plugins import Plugins

__all__ = ["describe", "framework_version"]


def describe(plugins: Plugins) -> Dict[str, Any]:
    """Adapters with their framework's version, strategies, plugins loaded and left out."""
    return {
        "adapters": [
            dict(asdict(adapter), framework_version=framework_version(adapter))
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
            return importlib_metadata.version(distribution)
        # It is not installed, or its metadata are damaged, which raises anything.
        except Exception:
            continue
    return ""
