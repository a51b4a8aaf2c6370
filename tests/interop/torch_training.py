"""Prints whether evaluations change a training in PyTorch: `python torch_training.py SUITE`."""

import random
import signal
import sys
import warnings

import numpy as np
import torch

from eval import evaluate


class Policy:
    """Answers with the network in training; also draws, and changes defaults, as policies may."""

    embodiment = "libero"

    def __init__(self, network):
        self.network = network

    def infer_batch(self, observations):
        torch.manual_seed(3)
        torch.set_default_dtype(torch.bfloat16)
        torch.set_grad_enabled(False)
        states = torch.tensor(np.stack([seen["observation/state"] for seen in observations]))
        actions = self.network(states.float()).repeat(10, 1, 1).transpose(0, 1)
        assert actions.is_inference()
        return [{"actions": chunk} for chunk in actions]

    def reset(self, rows, keys):
        pass


def train(worlds):
    """The weights and losses of a small network, evaluated twice on the way unless there are no worlds."""
    torch.manual_seed(0)
    random.seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 7))
    optimizer, losses = torch.optim.Adam(network.parameters()), []
    for step in range(6):
        loss = network(torch.randn(4, 8) + random.random()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if worlds and step % 3 == 2:
            before = settings()
            how = {"init_ids": [0, 1], "max_steps": 20, "video": "none", "num_envs": worlds}
            results = evaluate(Policy(network), sys.argv[1], name=f"step {step}", batch_size=worlds, **how)
            assert results.success == 1.0
            assert network.training
            assert settings() == before
    return [*losses, *(weight.item() for each in network.parameters() for weight in each.flatten())]


def settings():
    """What evaluations may not change."""
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        signal.getsignal(signal.SIGINT),
        list(warnings.filters),
    )


alone = train(0)
sys.stdout.write(f"{[train(worlds) == alone for worlds in (0, 1, 2)]}\n")
