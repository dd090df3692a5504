"""What is decided of each use of a lookup table: asked or read, by which settings, keys and order."""
