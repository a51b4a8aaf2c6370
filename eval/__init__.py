"""Puts worlds and policies together: plan, rollout, records, statistics, reports and the command line."""

import signal
import sys

# As `python -m eval.…` and in no other case: imports take a moment, and Ctrl-C in it needs no traceback.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
