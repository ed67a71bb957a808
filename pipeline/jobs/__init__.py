"""Runs that a cluster drives by itself: handed over, watched, cancelled, resumed.

:func:`.submit.submitted` plans in the run directory, as a normal run would. It writes the job's :class:`.record.Record`
beside the plan, and gives the cluster one task, :func:`.driver.drive`. This task reads the query from the directory and
answers it as ``solve`` does, with its worker's client, in a thread of its own that can be interrupted. It gives up its
place on the worker once the run waits for other tasks. A :class:`.job.Job` holds only the directory. It reads the
record, the owner of the job's lock and, if no task holds the lock, the scheduler's knowledge of the task.
"""
