"""Runs the cells of a dlb sweep on a Dask cluster."""

__version__ = "0.2.0"
