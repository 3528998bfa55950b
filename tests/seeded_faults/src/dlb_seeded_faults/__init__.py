"""PyTorch's adapter with one fault seeded in it, to see that dlb finds it."""
