"""The loop: plan, rollout, episode boundary, evaluation."""
