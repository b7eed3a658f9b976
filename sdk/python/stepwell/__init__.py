"""Durable workflows in plain Python functions, executed by a Stepwell server. See docs/sdk-python.md."""

from .app import App, Response
from .client import APIError, Client, Rejected, RunCancelled, RunFailed, RunHandle, StartOptions
from .definition import Step, StepOptions, Workflow, step

from .errors import (
    Blocked, Cancelled, ChildFailed, FatalError, Misuse, RetryableError, StepFailed, StepOver, StepwellError, TokenTaken,
    Undecodable,
    Unencodable,
)  # fmt: skip
from .execution import RunInfo
from .hooks import Approval, Hook, Signal, Update, Vote
from .loop import Future
from .observing import Observe, Work, traceparent
from .run import Run, SyncRun, cel
from .sealing import Codec, CodecFailed
from .serving import asgi, serve, wsgi
from .steps import StepContext, context
from .worker import Worker, work

__all__ = [
    "APIError", "App", "Approval", "Blocked", "Cancelled", "ChildFailed", "Client", "Codec", "CodecFailed", "FatalError",
    "Future", "Hook", "Misuse", "Observe", "Rejected", "Response", "RetryableError", "Run", "RunCancelled", "RunFailed", "RunHandle", "RunInfo", "Signal",
    "StartOptions", "Step", "StepContext", "StepFailed", "StepOptions", "StepOver", "StepwellError", "SyncRun", "TokenTaken",
    "Undecodable", "Unencodable", "Update", "Vote", "Work", "Worker", "Workflow", "asgi", "cel", "context", "serve",
    "step", "traceparent",
    "work", "wsgi",
]  # fmt: skip
