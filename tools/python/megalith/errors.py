"""What goes wrong, as exceptions. Each message is one line: what, expected, got, where, how to mend."""

from __future__ import annotations

from typing import List, Sequence


class MegalithError(Exception):
    """Any error of this package.

    Attributes:
        exit_code: what the command line's program ends with for the same error.
        messages: what the compiler said in full, "place: error: text" each, with notes on lines of
            their own; empty where there is no more than the exception's own text.
    """

    exit_code: int = 4
    messages: List[str]

    def __init__(self, text: str, messages: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.messages = list(messages)


class InputError(MegalithError, ValueError):
    """A file's contents, a path, a model that does not fit the target."""

    exit_code = 1


class OptionError(InputError):
    """An argument's value."""

    exit_code = 2


class VerificationError(MegalithError):
    """Kernels that are not proved free of deadlocks and races; `messages` has every reason."""

    exit_code = 3


class RunError(MegalithError, RuntimeError):
    """While compiling for a GPU or running: no GPU, no NVRTC, a deadline."""

    exit_code = 4


class ToleranceError(RunError):
    """Results differ from the reference by more than the tolerances.

    Attributes:
        results: what `Program.run` would have returned.
    """

    def __init__(self, text: str, results: dict) -> None:
        super().__init__(text)
        self.results = results


def from_native(exit_code: int, text: str, messages: Sequence[str]) -> MegalithError:
    """The exception for an error of the native module."""
    for kind in (InputError, OptionError, VerificationError):
        if kind.exit_code == exit_code:
            return kind(text, messages)
    return RunError(text, messages)
