"""The errors of workflows and steps. Those that a workflow raises as a StepwellError fail its run."""

from __future__ import annotations

import asyncio
from typing import Any

# Cancelled is raised where a workflow waits when somebody has asked to cancel its run. It is not an Exception: code
# that catches all errors does not catch it. Clean up in finally, or catch it and raise it again.
Cancelled = asyncio.CancelledError


class StepwellError(Exception):
    """An error with a code. A workflow that raises one fails its run with this message, code and details.

    Any other exception of a workflow is taken for a mistake in its code: nothing is recorded, the run is blocked, and
    goes on when code that can is deployed. App.workflow has fail_on for exceptions that shall fail the run.
    """

    def __init__(self, message: str, *, code: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details  # plain JSON

    def as_json(self) -> dict[str, Any]:
        """Returns the error in the JSON form of the function contract."""
        return as_json(self.message, self.code, self.details)


class FatalError(StepwellError):
    """Fails a step at once, without another attempt; or a run, when a workflow raises it."""


class RetryableError(StepwellError):
    """Fails an attempt of a step. The next one comes after its pause, but not within `after` seconds (up to a day)."""

    def __init__(self, message: str, *, after: float = 0, code: str = "", details: Any = None) -> None:
        super().__init__(message, code=code, details=details)
        self.after = after


class StepFailed(StepwellError):
    """A step has failed for good. Code and details are those of its last attempt; code `timeout` that its time is
    over."""

    def __init__(self, step: str, id: str, message: str, *, code: str = "", details: Any = None) -> None:
        super().__init__(message, code=code, details=details)
        self.step, self.id = step, id


class ChildFailed(StepwellError):
    """A child run has failed (code `child_failed`), or was cancelled (`child_cancelled`), or could not be started."""

    def __init__(self, id: str, run_id: str, message: str, *, code: str = "", details: Any = None) -> None:
        super().__init__(message, code=code, details=details)
        self.id, self.run_id = id, run_id


class TokenTaken(StepwellError):
    """Another run has the token of a hook."""

    def __init__(self, token: str, run_id: str) -> None:
        super().__init__(f"run {run_id} has the token {token!r}", code="token_taken")
        self.token, self.run_id = token, run_id


class Undecodable(StepwellError):
    """JSON does not have the type that is expected. Raised for a payload of a hook or an inbox, which is then
    consumed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="undecodable")


class Unencodable(FatalError):
    """A value cannot be kept as JSON, or not exactly: a type that is not supported, NaN, or broken text."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unencodable")


class Blocked(Exception):
    """Ends an invocation without a trace in the log. The run is shown as blocked, with this code, and called again."""

    def __init__(self, message: str, code: str = "blocked") -> None:
        super().__init__(message)
        self.message, self.code = message, code


class Misuse(Blocked):
    """The code uses a run's handle where it cannot be used, or does in a workflow what would not replay."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "misuse")


class StepOver(Exception):
    """Nobody waits for the step any more: it was cancelled, its run has ended, or it is executed again elsewhere."""


class Suspended(BaseException):
    """Leaves a plain function that has to wait. Never caught by the SDK's users: what is asked for afterwards does not
    count, and the answer is the same whether it is caught or not."""


def as_json(message: str, code: str, details: Any = None) -> dict[str, Any]:
    """Returns an error in the JSON form of the function contract. Details that cannot be kept are dropped."""
    from .codec import to_json  # which imports this module

    text = message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
    error: dict[str, Any] = {"message": text or code or "an error without a message"}
    if code:
        error["code"] = code
    try:
        if details is not None:
            error["details"] = to_json(details)
    except Unencodable:
        pass
    return error


LONGEST_MESSAGE = 8192  # characters of an error's message that are kept
