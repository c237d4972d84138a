"""What stops a run."""


class RunError(Exception):
    """The run cannot start or go on; the message is one sentence for the user."""
