"""Executors: run the episodes of an evaluation in this process, in worker processes or on Ray."""
