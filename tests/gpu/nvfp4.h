// The kernels of nvfp4.cpp, as text.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <map>

namespace megalith::test {
const std::map<llvm::StringRef, llvm::StringRef> &nvfp4Sources();
} // namespace megalith::test
