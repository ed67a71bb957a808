"""Which engine answers a question, and for how long each may try: prices, offers, the rule of turns, and the walk.

An engine is a row of :mod:`~.engine_registry`. :func:`~.offers.strategy_of` builds the strategy, a value, from the bids
of engines. :class:`~.turn_account.TurnAccount` decides which engine has the next turn. :func:`~.walk.walk` runs the
turns.
"""
