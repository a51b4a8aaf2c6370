"""Statistics, success rates, latency, graded texts, action differences."""
