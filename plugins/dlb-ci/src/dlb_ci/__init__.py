"""Proves what changed in a git repository: ``dlb changed``, for continuous integration."""

__version__ = "0.2.0"
