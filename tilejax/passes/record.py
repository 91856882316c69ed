"""What a pass reports of its own run."""

from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PassRecord:
    """One run of one pass.

    `before` and `after` count the equations of the program and of its bodies; `notes`
    says how often the pass did what, or what it left alone and why; `round` counts how
    often the pipeline had gone through its passes.
    """

    name: str
    before: int
    after: int
    seconds: float
    notes: dict[str, int] = field(default_factory=dict)
    round: int = 1

    def __str__(self) -> str:
        notes = "; ".join(f"{what}: {times}" for what, times in self.notes.items())
        return (
            f"{self.name:<10} {self.before:>6} -> {self.after:<6} "
            f"{self.seconds * 1e3:8.1f} ms  {notes}".rstrip()
        )


# Passes take a program and give one, so what they did goes past their results.
_notes: ContextVar[Counter[str] | None] = ContextVar("notes", default=None)


@contextmanager
def collecting():
    """Collect what `note` is told, in a counter from text to times."""
    notes: Counter[str] = Counter()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def note(what: str, times: int = 1) -> None:
    """Say that the running pass did something; nobody need be listening.

    **Arguments:**

    - `what`: A few words, the same each time.
    - `times`: How often it was done.
    """
    notes = _notes.get()
    if notes is not None and times:
        notes[what] += times
