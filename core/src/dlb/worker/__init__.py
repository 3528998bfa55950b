"""The worker's side: a process of an adapter's environment that answers calls."""
