"""Answers on the executor's disk: a folder of immutable segments that all its processes map into memory.

A file is there or it is not: it is written under another name and renamed. Nothing in a segment is changed,
so readers take no lock, and a writer that is killed leaves only a file to sweep away. Needs NumPy.
"""
