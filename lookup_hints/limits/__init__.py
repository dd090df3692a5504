"""How much one executor asks of an origin: limits, budgets, pauses and outages, kept by all its processes.

Decisions are pure: they read and write numbered cells, and are given the time. The cells lie in a file that
the processes of an executor map into memory. An ``OriginLimiter`` lets the requests of one task through.
"""
