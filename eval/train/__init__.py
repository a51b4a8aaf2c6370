"""`python -m eval.train`: demonstrations to a trained policy."""
