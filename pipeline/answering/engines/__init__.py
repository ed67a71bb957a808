"""Which engine answers a question, and for how long each may try: prices, offers, the rule of turns, and the walk.

An engine is a row of :mod:`~.engine_registry`. :func:`~.offers.strategy_of` makes the strategy, a value, of what
engines bid; :class:`~.turn_account.TurnAccount` says whose turn it is; :func:`~.walk.walk` runs the turns.
"""
