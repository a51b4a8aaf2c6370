"""What follows an evaluation while it goes on: the terminal, and loggers of experiments."""
