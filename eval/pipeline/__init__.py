"""`python -m eval.pipeline`: train a policy in stages of collecting and training."""
