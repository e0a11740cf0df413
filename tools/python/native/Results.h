//===- Results.h - a run's results as NumPy arrays ---------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_PYTHON_NATIVE_RESULTS_H
#define MEGALITH_TOOLS_PYTHON_NATIVE_RESULTS_H

#include "tools/python/native/Program.h"

#include <pybind11/pytypes.h>

namespace megalith::python {

/// The dictionary that megalith.Program.run documents. Needs the GIL.
pybind11::dict toDict(const RunResult &result);

} // namespace megalith::python

#endif // MEGALITH_TOOLS_PYTHON_NATIVE_RESULTS_H
