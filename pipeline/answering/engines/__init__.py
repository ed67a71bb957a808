"""Choose the engines that may answer a question, and run them in time slices until one answers.

An engine is a row of :mod:`~.engine_registry`. Each engine estimates its time.
:func:`~.engine_options.strategy_of` builds the strategy, a value, from these estimates.
:class:`~.turn_account.TurnAccount` decides which engine gets the next time slice. :func:`~.walk.walk` runs the time
slices.
"""
