"""Graph-based dependency parsing: one trained model, many inference engines."""

__version__ = "0.1.0"
