"""Write the events of a run in a legal order: ``EventWriter``."""

from aguila.stream.writer.event_writer import EventWriter
from aguila.stream.writer.run_writer import Events

__all__ = ["EventWriter", "Events"]
