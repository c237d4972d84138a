"""The one exception of the artifact format."""


class ArtifactError(Exception):
    """An artifact cannot be written, opened or trusted; the message is one sentence for the user."""
