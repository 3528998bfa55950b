"""The proof: what each check compares, with its own figure and verdict."""
