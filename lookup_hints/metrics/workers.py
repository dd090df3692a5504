"""Who observes the requests of a worker process: OpenTelemetry where it is configured, else nobody."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lookup_hints.metrics.observing import UNOBSERVED, RequestObserver
from lookup_hints.metrics.signals import signals
from lookup_hints.spec import LookupName

if TYPE_CHECKING:
    from lookup_hints.metrics.otel import Sending

_log = logging.getLogger("lookup_hints.metrics")


class Telemetry:
    """What this process sends; made in a worker at its first task, never in what it is forked from."""

    def __init__(self) -> None:
        self._sending = sending_of(os.environ)

    def observer(self, name: LookupName) -> RequestObserver:
        """Who observes the requests of one lookup in one task."""
        return UNOBSERVED if self._sending is None else self._sending.observer(name)


def sending_of(environment: Mapping[str, str]) -> Sending | None:
    """What sends what ``environment`` asks for; None where it asks for nothing, or the SDK is not there.

    What cannot be set up is one warning: it is no reason to fail a task.
    """
    wanted = signals(environment)
    for refused in wanted.refused:
        _log.warning("%s: lookup_hints sends http/protobuf alone, and so nothing of it", refused)
    if not wanted:
        return None
    try:
        from lookup_hints.metrics.otel import Sending

        return Sending(wanted)
    except ModuleNotFoundError:
        return None
    except Exception as error:  # its text may hold what a variable does, a secret for one
        _log.warning("OpenTelemetry cannot be set up, and nothing is sent: %s", type(error).__name__)
        return None
