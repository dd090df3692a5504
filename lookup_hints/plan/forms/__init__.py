"""The forms of a lookup join, one file each: when a use has the form, what it refuses, and how it is written.

Each form is a kind of ``LookupJoin``; ``find`` lists them in the order in which they are tried.
"""
