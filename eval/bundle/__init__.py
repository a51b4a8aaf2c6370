"""Puts a trained checkpoint into the package, with its test results and a model card."""
