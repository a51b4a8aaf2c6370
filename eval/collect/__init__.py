"""Collects demonstrations from any policy that succeeds, as a dataset in LeRobot's layout."""
