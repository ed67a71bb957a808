"""Commands about this machine: its rates, its kernels."""
