from __future__ import annotations

from profiles import pytest_configure

__all__ = ["pytest_configure"]
