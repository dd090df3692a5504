"""The forms of a lookup join: when each applies, what it refuses, and how it is written.

Each form is a kind of ``LookupJoin``; ``choose_form`` lists them in the order in which they are tried.
"""
