"""What runs in a deep-learning framework's process: contract, hooks, timed loop, protocol.

An adapter is a subclass of :class:`Adapter`; a distributed strategy is a subclass of
:class:`Strategy`. A package that is neither answers single hooks of :mod:`dlb_worker.hookspecs`
with functions marked :data:`hookimpl`.
"""

import pluggy

from dlb_worker.errors import DlbError, PluginError, UnsupportedError

__version__ = "0.2.0"

__all__ = ["Adapter", "DlbError", "PluginError", "Strategy", "UnsupportedError", "hookimpl"]

#: Marks a function or a method as the answer to the hook of its name.
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker("dlb")

from dlb_worker.adapter import Adapter, Strategy  # noqa: E402  (it uses hookimpl)
