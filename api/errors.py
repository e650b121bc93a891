"""What the doors refuse.

Exception
├── NotReachable   no Temporal server there; the message names the command that mends it
├── NoStack        no local stack runs, and no gateway is named; the message says how to name one
└── NoTrail        no audit database there; the message names the setting that mends it
"""


class NotReachable(Exception):
    """The Temporal server cannot be reached; the message says what to do."""


class NoStack(Exception):
    """No local stack runs, and the settings name no gateway; the message says what to do."""


class NoTrail(Exception):
    """There is no audit database to read; the message says where it was looked for."""
