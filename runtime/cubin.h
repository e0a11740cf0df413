//===- cubin.h - What a cubin says about its kernels -------------*- C++ -*-===//
//
// A cubin is an ELF file; registers, stack and code size are in its sections. Reading them here
// needs no CUDA tool.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CUBIN_H
#define MEGALITH_RUNTIME_CUBIN_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::runtime {

struct CubinKernel {
  std::string name;
  int64_t registers = 0;         ///< per thread
  int64_t stackBytes = 0;        ///< per thread
  int64_t spillInstructions = 0; ///< loads and stores of spilled registers
  int64_t staticSmemBytes = 0;   ///< without what the driver reserves
  int64_t codeBytes = 0;         ///< padded to 128
  int64_t parameterBytes = 0;
  int64_t maxThreads = 0; ///< from __launch_bounds__; 0 if none was given
};

struct Cubin {
  int sm = 0;                       ///< 90 for sm_90a
  std::vector<CubinKernel> kernels; ///< in the file's order

  const CubinKernel *kernel(llvm::StringRef name) const;
};

/// Reads a cubin; an error says at which part it is no (or a damaged) cubin.
llvm::Expected<Cubin> parseCubin(llvm::StringRef bytes);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_CUBIN_H
