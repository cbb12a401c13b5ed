"""Layer: store. The parts of ``aguila.store.sqlite``.

``engine`` is an open store: it joins the others to an event loop. ``file`` opens and migrates, ``writes`` and ``reads``
hold the SQL, ``writer`` is the only thread that writes, ``checkpoint`` tidies up beside it, ``wake`` tells other
processes, ``owners`` knows which of them have died.
"""
