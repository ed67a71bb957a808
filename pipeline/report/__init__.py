"""Pages about runs, jobs, batches and answers, each in one file that needs no network."""
