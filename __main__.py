"""Run the command line as ``python -m bucketflow``."""

import gc


def run() -> None:
    """Run the command line as a process of its own."""
    gc.disable()  # imports make many objects and no cycles
    from .pipeline.cli.ending import ended
    from .pipeline.cli.main import main

    gc.enable()
    try:
        main()
    finally:
        ended()


def _end(code: int) -> None:
    """End as a script does: a module would die of SIGINT if Ctrl-C ever met code that was compiled from a text."""
    import ctypes

    ctypes.pythonapi.Py_Exit(code)


if __name__ == "__main__":
    try:
        run()
    except SystemExit as end:
        if end.code and isinstance(end.code, int):
            _end(end.code)
        raise
