"""How a streaming INSERT runs: each option from its ``WITH``, the session or the default, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_hints.spi.in_force import Conf, in_force
from lookup_hints.spi.option_types import Trigger
from lookup_hints.spi.options import Place
from lookup_hints.streaming.insert import WrittenOptions
from lookup_hints.streaming.options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.streaming.restart import RestartStrategy, restart_strategy

ROOT = "spark.sql.streaming.checkpointLocation"
"""Spark's own key: a folder that holds the checkpoints of all queries that have a name."""


@dataclass(frozen=True)
class StreamSettings:
    """How one streaming query runs.

    Args:
        checkpoint: folder of its checkpoint; None: it has none that outlives it.
        trigger: when it looks for new rows; None: as soon as the last batch is done.
        output_mode: ``append``, ``update`` or ``complete``.
        name: the query's name, or None.
        sync: whether the statement waits for its end.
        strategy: when it starts again.
        failover: ``region`` or ``full``.
        sink_options: options for the sink.
    """

    checkpoint: str | None
    trigger: Trigger | None
    output_mode: str
    name: str | None
    sync: bool
    strategy: RestartStrategy
    failover: str
    sink_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def stream_settings(written: WrittenOptions, conf: Conf, *, keeps_rows: bool) -> StreamSettings:
    """The settings in force for a statement.

    Args:
        written: the options that it gives.
        conf: the session.
        keeps_rows: whether its sink keeps what is written. One that does not (console) takes a checkpoint
            from the statement alone: the session's is that of the query that the session is about.

    Raises:
        OptionError: the session gives an option a value that it cannot have.
    """
    given = {Place.INSERT: written.ours}
    values = {option.key: in_force(option, conf, given).value for option in STREAM_OPTIONS}
    restart = {option.key: in_force(option, conf).value for option in RESTART_OPTIONS}
    name, checkpoint = values["name"], values["checkpoint"]
    if not keeps_rows:
        checkpoint = written.ours.get("checkpoint")
    root = conf(ROOT)
    if checkpoint is None and root and name is not None:
        checkpoint = f"{root.rstrip('/')}/{name}"
    return StreamSettings(
        checkpoint=checkpoint,
        trigger=values["trigger"],
        output_mode=values["output-mode"],
        name=name,
        sync=values["sync"],
        strategy=restart_strategy(restart, has_checkpoint=checkpoint is not None),
        failover=restart["execution.failover-strategy"],
        sink_options=written.others,
    )
