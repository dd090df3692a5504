"""State of one worker process between tasks, and the task that it runs."""
