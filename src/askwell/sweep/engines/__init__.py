"""Engines: what does the runs of a sweep. All leave the same store."""

from askwell.sweep.engines.choose import check_engine, choose_engine
from askwell.sweep.engines.engine import Ended, Engine, Event, Lost, Started

__all__ = ["Ended", "Engine", "Event", "Lost", "Started", "check_engine", "choose_engine"]
