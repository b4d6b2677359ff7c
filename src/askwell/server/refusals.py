"""Why a request is refused. The service turns these into status codes, and a page into a sentence."""

from askwell.errors import AskwellError


class Refused(AskwellError):
    """A request that the service does not carry out."""


class NoSuchName(Refused):
    """A name that nothing has: a mixture, a run, a job, an LM."""


class Overloaded(Refused):
    """Too much is waiting; the request may be made again after some seconds."""

    def __init__(self, message: str, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"{message}; try again in {seconds} s")


class Closing(Refused):
    """The service is about to end."""


class SwitchedOff(Refused):
    """Something that this service does not offer."""


class ClientGone(Refused):
    """The client went away before it was answered."""
