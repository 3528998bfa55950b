"""TensorFlow for dlb."""

__version__ = "0.2.0"
