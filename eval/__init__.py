"""Puts worlds and policies together: plan, rollout, records, statistics, reports and the command line."""
