"""Definitions of steps and workflows: functions with their names, types and options."""

from __future__ import annotations

import functools
import inspect
import typing
from datetime import timedelta
from typing import Any, Callable, Coroutine, Generic, Mapping, ParamSpec, Sequence, TypeVar, overload

from . import codec
from .errors import Blocked, Misuse, Undecodable
from .loop import duration

P = ParamSpec("P")
R = TypeVar("R")
O = TypeVar("O")

# Seconds is a length of time: a number of seconds, or a timedelta.
Seconds = typing.Union[float, timedelta]


def seconds(length: Seconds) -> float:
    """Returns a length of time as a number of seconds."""
    return length.total_seconds() if isinstance(length, timedelta) else float(length)


class Signature:
    """How the arguments of a function are kept as JSON: none as null, one as it is, several as an object by name."""

    def __init__(self, fn: Callable[..., Any], skip: int = 0) -> None:
        self.fn = fn
        self._parameters = list(inspect.signature(fn).parameters.values())[skip:]

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The function's type hints. Raises Misuse if a name in them cannot be found."""
        try:
            return typing.get_type_hints(self.fn)
        except NameError as e:
            raise Misuse(f"{self.fn.__qualname__}: {e}: types of steps and workflows must be global names") from None

    def problems(self) -> list[str]:
        """Returns why the function cannot be used."""
        found = []
        for p in self._parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                found.append(f"{self.fn.__qualname__} has the parameter *{p.name}: parameters need names")
            elif why := codec.check_hint(self.hints.get(p.name, Any)):
                found.append(f"{self.fn.__qualname__}, parameter {p.name}: {why}")
        if why := codec.check_hint(self.hints.get("return", Any)):
            found.append(f"{self.fn.__qualname__} returns what cannot be kept: {why}")
        return found

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns arguments as the input in the log. Raises TypeError if they do not fit the function."""
        given = inspect.Signature(self._parameters).bind(*args, **kwargs).arguments
        if not self._parameters:
            return None
        if len(self._parameters) == 1:
            return given.get(self._parameters[0].name)
        return dict(given)

    def decode(self, plain: Any) -> dict[str, Any]:
        """Returns the arguments of an input, by name. Raises Undecodable."""
        if not self._parameters:
            return {}
        if len(self._parameters) == 1:
            plain = {self._parameters[0].name: plain} if plain is not None or not self._has_default() else {}
        if not isinstance(plain, dict):
            raise Undecodable(f"the input of {self.fn.__qualname__} is no object with its arguments")
        known = {p.name for p in self._parameters}
        return {name: codec.from_json(self.hints.get(name, Any), v) for name, v in plain.items() if name in known}

    def _has_default(self) -> bool:
        return self._parameters[0].default is not inspect.Parameter.empty

    @property
    def result(self) -> Any:
        """The type of the result."""
        return self.hints.get("return", Any)


class StepOptions(typing.TypedDict, total=False):
    """Options of a step. Lengths of time are in seconds, or timedeltas.

    retries: attempts after the first one; 4 by default. backoff: the pause before the first of them (1), which grows by
    factor (2) up to max_backoff (300). attempt_timeout: of one attempt, 1 to 43200 (300). timeout: of all attempts and
    pauses; none by default. heartbeat_timeout: how often its function calls context().heartbeat, 2 to 43200; none by
    default. deployment: which one executes the step; by default, that of the run. limits: slots that
    each attempt needs, as {"name", "key"}. priority: up to an hour earlier than others that wait for limits.
    """

    id: str
    retries: int
    backoff: Seconds
    factor: float
    max_backoff: Seconds
    attempt_timeout: Seconds
    timeout: Seconds
    heartbeat_timeout: Seconds
    deployment: str
    limits: Sequence[Mapping[str, Any]]
    priority: Seconds


def step_fields(options: StepOptions) -> dict[str, Any]:
    """Returns options as the fields of runStep."""
    fields: dict[str, Any] = {}
    times = ("timeout", "attempt_timeout", "heartbeat_timeout", "priority")
    for name, field in zip(times, ("timeout", "attemptTimeout", "heartbeatTimeout", "priority")):
        if name in options:
            fields[field] = duration(seconds(options[name]))  # type: ignore[literal-required]
    retry: dict[str, Any] = {}
    if (retries := options.get("retries")) is not None:
        if retries < 0:
            raise ValueError(f"retries={retries}: a step has one attempt at least")
        retry["maxAttempts"] = retries + 1
    if "backoff" in options:
        retry["backoff"] = duration(seconds(options["backoff"]))
    if "factor" in options:
        retry["factor"] = options["factor"]
    if "max_backoff" in options:
        retry["maxBackoff"] = duration(seconds(options["max_backoff"]))
    if retry:
        fields["retry"] = retry
    if "deployment" in options:
        fields["deployment"] = options["deployment"]
    if "limits" in options:
        fields["limits"] = [dict(limit) for limit in options["limits"]]
    return fields


class Step(Generic[P, R]):
    """A step: a function that may do anything. Call it as it is in tests; in a workflow, by run.step."""

    def __init__(self, fn: Callable[..., Any], name: str, options: StepOptions) -> None:
        self.fn, self.name, self.options = fn, name, options
        self.signature = Signature(fn)
        self.fields = step_fields(options)  # checks them
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        from .execution import current

        if current() is not None:
            raise current_misuse(
                f"step {self.name} was called as a function in a workflow: use run.step({self.name}, …)"
            )
        return self.fn(*args, **kwargs)

    def using(self, **options: Any) -> Step[P, R]:
        """Returns the step with other options."""
        if unknown := options.keys() - StepOptions.__annotations__.keys():
            raise TypeError(f"a step has no option {min(unknown)}")
        return Step(self.fn, self.name, typing.cast(StepOptions, {**self.options, **options}))


def current_misuse(text: str) -> Misuse:
    """Returns a misuse by the workflow that is running, which it cannot hide by catching it."""
    from .execution import current
    from .places import caller

    misuse = Misuse(f"{caller()}: {text}")
    if engine := current():
        engine.fail(misuse)
    return misuse


class StepDecorator:
    """What step(…) with options returns."""

    def __init__(
        self, name: str | None, options: StepOptions, add: Callable[[Step[..., Any]], None] | None = None
    ) -> None:
        self._name, self._options, self._add = name, options, add

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> Step[P, R]:
        ...

    @overload
    def __call__(self, fn: Callable[P, R]) -> Step[P, R]:
        ...

    def __call__(self, fn: Callable[..., Any]) -> Step[..., Any]:
        made: Step[..., Any] = Step(fn, self._name or fn.__name__, self._options)
        if self._add:
            self._add(made)
        return made


def decorate(
    fn: Callable[..., Any] | None, name: str | None, options: StepOptions, add: Callable[[Step[..., Any]], None] | None
) -> Any:
    """Decorates a function at once, or returns a decorator."""
    if unknown := options.keys() - StepOptions.__annotations__.keys():
        raise TypeError(f"a step has no option {min(unknown)}")
    decorator = StepDecorator(name, options, add)
    return decorator if fn is None else decorator(fn)


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]:
    ...


@overload
def step(fn: Callable[P, R], /) -> Step[P, R]:
    ...


@overload
def step(*, name: str | None = None, **options: Any) -> StepDecorator:
    ...


def step(fn: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Makes a step of a function: @step, or @step(retries=9, backoff=0.5). StepOptions lists the options."""
    return decorate(fn, name, typing.cast(StepOptions, options), None)


class Workflow(Generic[O]):
    """A workflow with output O: an async function with a Run, or a plain one with a SyncRun."""

    def __init__(self, fn: Callable[..., Any], name: str, fail_on: tuple[type[Exception], ...]) -> None:
        self.fn, self.name, self.fail_on = fn, name, fail_on
        self.is_async = inspect.iscoroutinefunction(fn)
        self.signature = Signature(fn, skip=1)
        functools.update_wrapper(self, fn, updated=())

    def problems(self) -> list[str]:
        """Returns why the function cannot be a workflow."""
        from .run import Run, SyncRun

        parameters = list(inspect.signature(self.fn).parameters.values())
        if not parameters:
            return [f"workflow {self.name} has no parameter for its run"]
        want, other = (Run, SyncRun) if self.is_async else (SyncRun, Run)
        if self.signature.hints.get(parameters[0].name, want) is other:
            kind = "an async function, which gets a Run" if self.is_async else "a plain function, which gets a SyncRun"
            return [f"workflow {self.name} is {kind}"]
        return self.signature.problems()


def decode_output(name: str, hint: Any, plain: Any) -> Any:
    """Decodes a recorded result. Raises Blocked: the type has changed since it was recorded."""
    try:
        return codec.from_json(hint, plain)
    except Undecodable as e:
        raise Blocked(f"the log has a result of {name} that does not decode: {e.message}", e.code) from None
