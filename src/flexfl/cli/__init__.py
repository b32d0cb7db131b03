"""The command line interface: one module for each command."""

_OPTIONS = {"resume=True": "--resume", "out=…": "--out"}

FAILED, INTERRUPTED = 2, 130
"""Exit codes: an error; stopped by a signal, can be resumed."""


def as_command(message: object) -> str:
    """Return a message with the arguments of `flexfl.simulate` as options of the command line.

    Errors speak to who calls the package from Python; the command line translates them:

    >>> as_command("runs/a already holds a run; add resume=True to continue it, or choose another out=…")
    'runs/a already holds a run; add --resume to continue it, or choose another --out'
    """
    text = str(message)
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text
