"""Command lines for checkpoints: parity with openpi, conversion."""
