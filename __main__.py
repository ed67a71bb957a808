"""Run the command line as ``python -m bucketflow``."""

from .pipeline.cli import main

main()
