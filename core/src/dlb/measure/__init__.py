"""Measurement: what is timed how often, and what may be said of it.

The unit is a trial: a fresh process that trains a new model. A cell is what is measured: a workload on an
adapter with its options. Rounds, each with one trial of every cell, are compared as pairs.

==============  ================================================================
``schedule``    the rounds: every cell once and one twice, in random order
``steady``      where the steps of a trial are steady
``ratios``      two cells as a ratio with its interval, and the word for it
``stopping``    how many rounds a precision needs
``work``        operations and bytes of a training step
==============  ================================================================
"""
