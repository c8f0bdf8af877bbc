"""Prints the numbers that bf16_states_test.cc compares with: states of PyTorch's own optimizers in float64.

    python tests/train/bf16_states_reference.py          (torch 2.x)
"""
import torch

torch.set_default_dtype(torch.float64)
STEPS = 300


def gradient(step):
    """As `gradient` in the test."""
    return 0.02 + 0.01 * ((step * 37 + 5) % 101) / 101


def run(make, states):
    w = torch.tensor([0.5]).requires_grad_()
    optimizer = make([w])
    for step in range(STEPS):
        w.grad = torch.tensor([gradient(step)])
        optimizer.step()
    return [optimizer.state[w][state].item() for state in states]


optim = torch.optim
for name, make, states in [
    ("momentum", lambda p: optim.SGD(p, lr=0.001, momentum=0.98), ["momentum_buffer"]),
    ("rmsprop", lambda p: optim.RMSprop(p, lr=0.001, alpha=0.998), ["square_avg"]),
    ("adagrad", lambda p: optim.Adagrad(p, lr=0.001), ["sum"]),
    ("adam", lambda p: optim.Adam(p, lr=0.001), ["exp_avg", "exp_avg_sq"]),
    ("adamw", lambda p: optim.AdamW(p, lr=0.001), ["exp_avg", "exp_avg_sq"]),
]:
    print(name, *(f"{value:.12g}" for value in run(make, states)))
