"""The ladder of proof: what each rung compares, with its own figure and verdict."""
