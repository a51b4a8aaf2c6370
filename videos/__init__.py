"""Turns a rollout into a video with what the policy said on it. Knows neither policy nor simulator."""
