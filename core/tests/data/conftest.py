"""Fixtures of the tests of data, which those of dlb-data share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tiny_data import describe_tiny, home, tiny

__all__ = ["describe_tiny", "home", "tiny"]
