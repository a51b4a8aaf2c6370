"""Writes videos of rollouts with the policy's texts. Independent of policy and simulator."""
