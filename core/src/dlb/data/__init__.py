"""Data sets: which there are, where they are, how they are fetched, read, checked and batched.

Nothing is imported here, so that ``import dlb`` stays light. Import the module you need:

- ``dlb.data.catalogue``: what is known of each data set (no NumPy needed)
- ``dlb.data.locate``: where each one is on this machine (no NumPy needed)
- ``dlb.data.fetch``: bringing one here (no NumPy needed)
- ``dlb.data.idx``: the IDX file format
- ``dlb.data.load``: a split as arrays
- ``dlb.data.batches``: the order in which samples are seen
"""
