"""Distributed elimination: agents on a pseudo-tree that see their own functions and their children's messages.

For :func:`.dpop.dpop`, a pseudo-tree arranges the agents (:func:`.solving.chosen_tree`), and the steps of each
agent are planned from sizes (:func:`.agent_plan.plan_agents`). If messages would exceed a budget, :func:`.solving.cuts`
chooses the variables to fix. An agent starts with its :class:`.agent.Knowledge`, a program with its own tables;
:func:`.agent.util` and :func:`.agent.assign` take this and messages. They are tasks of a pool
(:func:`.agent_tasks.run_agents`), or answer requests in batches (:class:`.bounded.BoundedRun`). :mod:`.agents.network`
simulates the time of both with one computer per agent.
"""
