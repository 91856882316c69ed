"""Ctrl-C between steps, not in the middle of one."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class AtOnce(KeyboardInterrupt):
    """A second Ctrl-C: the user does not want to wait for the step's end."""


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Hold an interrupt back until what this gives is called; a second one is at once.

    In the middle of a step the old state may be gone (its memory is the new one's) and
    the new one not there yet, so that there would be nothing to save.

    >>> with held_back() as check:
    ...     check()
    """
    asked: list[int] = []

    def handle(number: int, frame) -> None:
        del frame
        if asked:
            raise AtOnce
        asked.append(number)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check  # other threads get no signals
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
