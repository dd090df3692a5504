"""Settings of the runtime's tests."""

from hypothesis import settings

# An example's time tells of the machine's load, not of the code.
settings.register_profile("runtime", deadline=None)
settings.load_profile("runtime")
