"""Run the command line as ``python -m bucketflow``."""

from .pipeline.cli.main import main

main()
