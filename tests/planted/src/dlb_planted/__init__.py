"""PyTorch's adapter with one difference planted in it, to see that dlb finds it."""
