"""What lookups will cost before they run: arithmetic over counted keys, and how it is shown; pure."""
