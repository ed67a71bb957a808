"""Distributed elimination: agents on a pseudo-tree that see their own functions and their children's messages.

For :func:`.dpop.dpop` a pseudo-tree arranges the agents (:func:`.tree_choice.chosen_tree`), and the steps of each are
planned from sizes (:func:`.agent_plan.plan_agents`); where messages would exceed a budget, :func:`.solving.cuts` says
which variables are fixed. What an agent then has is its :class:`.agent.Knowledge`, a program with its own tables;
:func:`.agent.util` and :func:`.agent.assign` get that and messages. They are tasks of a pool
(:func:`.agent_tasks.run_agents`), or answer requests in batches (:class:`.bounded.BoundedRun`);
:mod:`.agents.network` simulates what both would take on one computer an agent.
"""
