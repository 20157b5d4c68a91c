"""Muon: momentum whose matrix is made orthogonal before it is applied, so that every direction of a weight matrix learns at one
pace (K. Jordan et al. 2024; Newton-Schulz coefficients from there). For the matrices inside the transformer's blocks."""

import torch


def orthogonal(matrix, steps=5):
    """U V^T of the matrix's U S V^T, roughly: singular values end between 0.7 and 1.2."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices, lr, momentum=0.95, weight_decay=0.05):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for matrix in group["params"]:
                mean = self.state[matrix].setdefault("mean", torch.zeros_like(matrix))
                mean.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(mean, group["momentum"]))
                stretch = max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * stretch)
