"""Layer: store. The parts of ``aguila.store.memory``: one ``thread``, and the ``files``."""
