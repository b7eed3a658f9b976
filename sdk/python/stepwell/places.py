"""Where in the code something was asked for."""

from __future__ import annotations

import asyncio
import os
import sys
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ASYNCIO = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep
LONGEST = 256  # characters that the server keeps


def caller() -> str:
    """Returns the nearest line outside of the SDK and of asyncio, as file:line."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _ASYNCIO)) and not name.endswith("contextlib.py"):
            return f"{os.path.basename(name)}:{frame.f_lineno}"[-LONGEST:]
        frame = frame.f_back
    return "unknown"
