"""The script for ``spark-submit``: ``spark-submit [...] $(lookup-hints submit-script) FILE.sql``.

It has a folder of its own, as Python puts the folder of a script first on its path.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from lookup_hints.cli.submit import main
    except ModuleNotFoundError as error:
        sys.exit(
            f"The Python of the driver ({sys.executable}) does not have the module {error.name!r}. Install"
            " lookup-hints for it, name one that has it (PYSPARK_DRIVER_PYTHON=...), or ship it:"
            " spark-submit --py-files $(lookup-hints archive) ..."
        )
    sys.exit(main())
