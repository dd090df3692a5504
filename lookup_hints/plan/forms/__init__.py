"""The forms of a lookup join: when a use of a lookup table has one, what it refuses, and how it is written.

Each form is a kind of ``LookupJoin``; ``choose_form`` lists them in the order in which they are tried.
"""
