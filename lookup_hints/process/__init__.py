"""What one worker process keeps between its tasks, and what it knows of the task it is in."""
