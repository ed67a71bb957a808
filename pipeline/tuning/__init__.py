"""Launches learnt on this machine: steps are drawn and measured, regressions fitted and compared, the best one kept."""
