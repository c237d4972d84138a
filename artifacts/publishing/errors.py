"""How publishing fails."""


class PublishingError(Exception):
    """An artifact cannot be pushed or pulled; the message is one sentence for the user."""


class ConnectionCutError(PublishingError):
    """The connection ended within a body; what came before is good, and more can be asked for."""
