"""Functions that a user hands over: whether calling one runs it, and its result.

A coroutine function that is called as a plain one does nothing, and a generator function never does
anything: both would look like handlers that work. So they are recognised when they are declared,
through partials, bound methods and objects with `__call__`.
"""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# inspect.CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR, without that import
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200


def is_coroutine_function(function: object) -> bool:
    """Whether a call returns a coroutine, as far as the function itself shows it."""
    return bool(_flags(function) & _COROUTINE)


def imported(spec: str) -> Any:
    """The object of `module:name`. ImportError, in one line, whatever keeps it from being had."""
    import importlib

    module, _, name = spec.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{spec} cannot be imported: {error}") from error
    except Exception as error:
        kind = "" if isinstance(error, SyntaxError) else f"{type(error).__name__}: "
        raise ImportError(f"{spec} cannot be imported: {module} fails: {kind}{error}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportError(f"{spec} cannot be imported: {module} has no {name}") from None
    return found


def check_callable(function: object, title: str) -> None:
    """TypeError for anything that a call would not run: no function, or a generator function."""
    if not callable(function):
        raise TypeError(f"{title} must be a function, not {function!r}")
    if _flags(function) & (_GENERATOR | _ASYNC_GENERATOR):
        raise TypeError(f"{title} is a generator function: a call would not run it")


def check_plain(function: object, title: str, *, iterated: bool = False) -> None:
    """check_callable(), and TypeError for a coroutine function where nothing could await it.

    Where its result is `iterated`, a generator function is as good as any.
    """
    if not (iterated and _flags(function) & _GENERATOR):
        check_callable(function, title)
    if is_coroutine_function(function):
        raise TypeError(f"{title} must be a plain function: it is called outside of any loop")


def refuse_awaitable(result: object, title: str) -> None:
    """TypeError if a plain function returned a coroutine, which nothing awaits."""
    if result is None or not hasattr(result, "__await__"):
        return
    close = getattr(result, "close", None)
    if close is not None:
        close()
    raise TypeError(f"{title} returned a coroutine: declare it with `async def`")


def _flags(function: Any) -> int:
    while isinstance(function, partial):
        function = function.func
    called: Any = function if hasattr(function, "__code__") else None
    if called is None:
        called = getattr(function, "__func__", None)
    if called is None and not isinstance(function, type):
        called = getattr(type(function), "__call__", None)  # noqa: B004 - its code, not whether
        if isinstance(called, partial):
            return _flags(called)
    code = getattr(called, "__code__", None)
    return int(getattr(code, "co_flags", 0))
