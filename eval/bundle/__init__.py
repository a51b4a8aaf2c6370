"""Ships a trained checkpoint with the package: what is served, what it reached, and a card that says both."""
