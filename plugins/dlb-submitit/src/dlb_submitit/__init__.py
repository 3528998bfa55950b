"""Runs the cells of a dlb sweep as jobs of Slurm."""

__version__ = "0.2.0"
