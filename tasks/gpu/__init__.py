"""Kernels for GPUs: launches, memory, CUDA sources."""
