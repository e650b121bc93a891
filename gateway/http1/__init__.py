"""HTTP/1.1 on asyncio protocols: heads, framings, the two kinds of connection, and the pool.

This room knows bytes and sockets only. It does not know routes, faults or records: those who use it
hand in objects with a few callbacks (`replica.Owner`, `client.Service`), and are called in the turn
of the loop in which the bytes came. Heads are parsed by llhttp, which is strict; what it lets
through although two readers could take it in two ways is refused in `heads.py`. Bodies are followed
by `framing.py`, which knows the very byte at which a message ends.
"""
