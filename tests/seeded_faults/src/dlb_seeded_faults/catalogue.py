"""Every fault that dlb finds, by name, from the modules that register them."""

from __future__ import annotations

from dlb_seeded_faults import adaptive, beyond_noise, faults, losses, steps

__all__ = ["FAULTS"]

#: Importing a module registers its faults.
MODULES = (faults, beyond_noise, adaptive, losses, steps)
FAULTS = faults.FAULTS
