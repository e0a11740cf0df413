"""Compiles a small model and runs it on this machine's GPU and on the host platform: the same within rounding."""

import sys

import numpy as np

import megalith

TOLERANCE = 4e-3  # relative RMS of a layer, as in tools/check/Report.h


def main(config):
    program = megalith.compile(config, rows=4, sms=16)
    sequences = [{"start": 129}, {"start": 17, "rows": 2, "tokens": [5, 300, 7, 9]}]
    gpu = program.run(sequences=sequences, steps=2, backend="cuda")
    again = program.run(sequences=sequences, steps=2, backend="cuda")
    host = program.run(sequences=sequences, steps=2, backend="host")
    for name in ("residual", "logits", "router_logits"):
        ours, theirs = np.nan_to_num(gpu[name].astype(np.float64)), np.nan_to_num(host[name].astype(np.float64))
        error = np.sqrt(np.square(ours - theirs).sum() / np.square(theirs).sum())
        print(f"{name}: {gpu[name].shape} {gpu[name].dtype}, relative RMS of GPU and host {error:.1e}")
        if not error <= TOLERANCE:
            sys.exit(f"python: FAILED: {name} differs by {error}")
        if not np.array_equal(gpu[name], again[name], equal_nan=True):
            sys.exit(f"python: FAILED: {name} has other bits the second time")
    largest = {name: float(np.nanmax(error)) for name, error in gpu["errors"].items() if not np.isnan(error).all()}
    print(f"against the reference: {largest}")
    try:
        program.run(sequences=[{"start": 0, "rows": 5}], backend="cuda")
        sys.exit("python: FAILED: five rows in a plan of four were not refused")
    except megalith.InputError as error:
        print(f"refused as expected: {error}")
    print("python: passed")


main(sys.argv[1])
