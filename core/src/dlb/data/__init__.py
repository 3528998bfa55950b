"""Data sets: how they are described, found, read, checked and batched.

This package imports nothing, so that ``import dlb`` stays fast. Import the module that you need:

- ``dlb.data.description``: what is known of a data set (needs no NumPy)
- ``dlb.data.registry``: the data sets by name
- ``dlb.data.locate``: the folder of each one on this machine (needs no NumPy)
- ``dlb.data.idx``: the IDX file format
- ``dlb.data.load``: a split as arrays
- ``dlb.data.batches``: the order of samples in training
"""
