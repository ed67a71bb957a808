"""Predictions of a plan on the workers of a cluster: a discrete-event simulation of its tasks. No task runs.

The entry point is :func:`bucketflow.simulate`.
"""
