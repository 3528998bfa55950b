"""The core's side of worker processes: starts them, calls them, and ends all of them."""

from dlb.supervision.group import Group, Launch, worker_group

__all__ = ["Group", "Launch", "worker_group"]
