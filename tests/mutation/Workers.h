// Jobs that share nothing, dealt to processes.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace megalith::mutation {

/// Does jobs [0, jobs) in `workers` processes, each of which takes the next one when it is done
/// with its last; with one worker here. What `work` returns for each, lines without empty ones,
/// `take` gets here, in whatever order. False if a process ends before its work does.
bool dealOut(size_t jobs, unsigned workers, llvm::function_ref<std::string(size_t)> work,
             llvm::function_ref<void(llvm::StringRef line)> take);

} // namespace megalith::mutation
