"""The core's side of workers: starting them, talking to them, and ending every one of them."""

from dlb.supervision.group import Group, Launch, worker_group

__all__ = ["Group", "Launch", "worker_group"]
