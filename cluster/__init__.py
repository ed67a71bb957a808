"""Where tasks run: in-process, local workers, remote schedulers."""
