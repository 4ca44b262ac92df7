"""The training loop: epochs, optimizer steps, learning rates, early stopping."""
