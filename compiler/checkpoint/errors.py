"""What makes a checkpoint unusable."""

_MAX_LENGTH = 2000


class CheckpointError(Exception):
    """The checkpoint does not fit; the message is one sentence that names the file and the field or tensor."""

    def __init__(self, message: str) -> None:
        # It quotes names out of the checkpoint, which may hold line ends, terminal codes, half characters, or be huge.
        if len(message) > _MAX_LENGTH:
            message = f"{message[: _MAX_LENGTH // 2]} ... {message[-_MAX_LENGTH // 4 :]}"
        super().__init__("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in message))
