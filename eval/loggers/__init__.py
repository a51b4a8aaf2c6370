"""Logs of a running evaluation for other tools: TensorBoard, Weights & Biases, Trackio."""
