"""Presets (YAML) and their schemas, and code shared by all command lines."""

import os

# Read when JAX is first imported. XLA logs remarks on slow compilation and on features of the processor as
# errors; failures are exceptions, and what ends the process is still logged.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"
