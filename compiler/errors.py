"""What stops a build besides the checkpoint and the artifact."""


class BuildError(Exception):
    """The build cannot start or go on; the message is one sentence for the user."""
