"""The commands; one file for each."""

FAILED, INTERRUPTED = 2, 130
"""Exit codes: something went wrong; stopped by a signal, to be gone on with."""
