"""Results folders as dlb writes them: those that tests of the report have."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "dlb-report" / "tests"))
