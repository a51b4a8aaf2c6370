"""Tables, comparisons, leaderboards and pictures from recorded runs."""
