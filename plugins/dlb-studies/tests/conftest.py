"""The real ``dlb`` command, and what else the core's tests share."""

from __future__ import annotations

import sys
from pathlib import Path

CORE = Path(__file__).parents[3] / "core" / "tests"
sys.path.extend(map(str, (CORE, CORE / "cli")))

from command_fixtures import dlb_command, proofs  # noqa: E402
from command_fixtures import dlb_with_proofs as dlb  # noqa: E402
from profiles import pytest_configure  # noqa: E402

__all__ = ["dlb", "dlb_command", "proofs", "pytest_configure"]
