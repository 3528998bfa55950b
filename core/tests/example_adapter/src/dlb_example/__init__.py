"""An adapter for dlb in plain NumPy. Read plugin.py first, then model.py and strategy.py."""

__version__ = "0.1.0"
