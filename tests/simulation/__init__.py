"""One seed simulates the whole runtime: clock, event loops, threads, files, processes and source are made up."""
