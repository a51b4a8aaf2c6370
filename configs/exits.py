"""Exit codes of commands, and the one place where an error becomes one line."""

import argparse
import errno
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from configs.errors import UsageError
from configs.signals import ends_at_once

FAILED = 1
"""Exit code if nobody reads the output any more."""
INPUT_ERROR = 2
"""Exit code for bad input."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as in shells."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a UsageError."""
        raise UsageError(f"{message}. See --help.")


def exit_code_of(command: Callable[[], int | None]) -> int:
    """Run a command: its exit code; 2 for bad input (one line), 130 for Ctrl-C.

    Files that cannot be opened, created or written are bad input, too. SIGINT and SIGTERM end the process at
    once until the command handles them.

    Args:
        command: Returns an exit code; None counts as 0.
    """
    try:
        with ends_at_once():
            return command() or 0
    except UsageError as error:
        return _refuse(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush fails, too
        return FAILED
    except OSError as error:
        if error.filename is None and error.errno not in _NO_SPACE:
            raise
        return _refuse(_told(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _told(error: OSError) -> UsageError:
    reason = error.strerror or type(error).__name__
    if error.errno in _NO_SPACE:
        return UsageError(f"{error.filename or 'writing'}: {reason}; free some, and continue with --resume")
    return UsageError(f"cannot use {str(error.filename)!r}: {reason}; give another")


def _refuse(error: UsageError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return INPUT_ERROR
