"""The commands that measure, list results and compare them."""
