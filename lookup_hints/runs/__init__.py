"""One statement run and watched, over a Spark that is started for it: for the command line and notebooks."""
