"""Predicted run of a plan on the workers of a cluster: a discrete-event simulation that runs no task.

The entry point is :func:`bucketflow.simulate`.
"""
