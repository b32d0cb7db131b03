"""The command line interface: one module for each command."""

FAILED, INTERRUPTED = 2, 130
"""Exit codes: an error; stopped by a signal, can be resumed."""
