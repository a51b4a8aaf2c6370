"""`oxygen-eval train`: demonstrations to a trained policy."""
