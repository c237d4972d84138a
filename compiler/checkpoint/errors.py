"""What makes a checkpoint unusable."""


class CheckpointError(Exception):
    """The checkpoint does not fit; the message is one sentence that names the file and the field or tensor."""
