"""Megalith: from a Mixture-of-Experts model's config to proved CUDA kernels, one per layer.

    import megalith
    program = megalith.compile("config.json", rows=4, sms=8)
    print(program.source("layer"))
    results = program.run(contexts=[129, 17])
    print(results["residual"].shape, results["errors"]["residual"].max())

Long calls release the GIL. A program may be used from several threads; one call works at a time.
"""

from megalith.errors import (
    InputError,
    MegalithError,
    OptionError,
    RunError,
    ToleranceError,
    VerificationError,
)
from megalith.program import Program, Results, Sequence, compile, emit, verify

__all__ = [
    "InputError",
    "MegalithError",
    "OptionError",
    "Program",
    "Results",
    "RunError",
    "Sequence",
    "ToleranceError",
    "VerificationError",
    "compile",
    "emit",
    "verify",
]
