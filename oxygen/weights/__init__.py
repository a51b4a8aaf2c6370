"""Checkpoints: downloading, checking, and reading them tensor by tensor."""
