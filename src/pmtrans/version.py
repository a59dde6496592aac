"""The version of the package, in one place that everything may import."""

__version__ = "0.1.0"
