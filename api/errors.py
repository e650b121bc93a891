"""What the doors refuse.

Exception
└── NotReachable   no Temporal server there; the message names the command that mends it
"""


class NotReachable(Exception):
    """The Temporal server cannot be reached; the message says what to do."""
