"""The commands ``dlb port``, ``dlb capture`` and ``dlb diff``."""
