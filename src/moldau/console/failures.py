"""Error that a page shows in words."""


class ConsoleError(Exception):
    """Error: something asked for cannot be done; the message is one line that says why and what to do."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        """The status of the HTTP answer."""
