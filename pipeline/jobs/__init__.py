"""Runs that a cluster drives by itself: handed over, watched, cancelled, resumed.

:func:`.submit.submitted` plans in the run directory, as a run there would, writes the job's :class:`.record.Record`
beside the plan and gives the cluster one task, :func:`.driver.drive`. That takes the question from the directory and
asks it as ``solve`` does, with its worker's client, in a thread of its own that can be interrupted; it gives up its
place on the worker once the run waits for other tasks. A :class:`.job.Job` holds nothing but the directory: what the
record says, who has the lock of the job, and, where no task has it, what the scheduler knows of the task.
"""
