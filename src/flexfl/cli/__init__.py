"""The commands."""

FAILED, INTERRUPTED = 2, 130
"""Exit codes: something went wrong; stopped by a signal, to be gone on with."""
