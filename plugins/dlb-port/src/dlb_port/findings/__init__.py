"""Causes that checks of ports and of two files find, as fields. :mod:`dlb_port.sentences` makes sentences."""
