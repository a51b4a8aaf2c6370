"""What the policy is trained on."""
