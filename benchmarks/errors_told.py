"""What goes wrong with a benchmark is told in a line, as by ``dlb``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dlb.errors import DlbError


def told(main: Callable[[], int]) -> int:
    """The exit status of a benchmark; an error's, once it is told, and 130 of an interrupt."""
    name = Path(sys.argv[0]).name
    try:
        return main()
    except DlbError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
