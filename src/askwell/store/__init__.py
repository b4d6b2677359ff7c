"""The store: a folder of runs, each whole or not there. No server, and nothing that a reader has to wait for."""

from askwell.store.environment import environment
from askwell.store.folder import Store, open_store
from askwell.store.unfinished import Unfinished

__all__ = ["Store", "Unfinished", "environment", "open_store"]
