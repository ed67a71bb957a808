"""Problems of agents: XCSP 2.1 as FRODO and XDisCSP write it, pyDCOP's YAML, and who owns what."""
