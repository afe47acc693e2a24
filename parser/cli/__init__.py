"""Command line: arguments, progress, messages.  The work is done elsewhere."""

from parser.cli.main import main

__all__ = ["main"]
