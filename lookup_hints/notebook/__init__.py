"""Lookups in Jupyter and IPython: cells of SQL, and how rows, plans and counts look there."""
