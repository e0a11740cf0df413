//===- main.cpp - megalith-calibrate: measuring where only a driver is ----===//
//
// `megalith calibrate` without the compiler: small, and it runs where there is a driver, an NVRTC
// and a glibc.
//
//===----------------------------------------------------------------------===//

#include "tools/calibrate/CommandLine.h"

#include "llvm/Support/raw_ostream.h"

using namespace megalith;

int main(int argc, char **argv) {
  llvm::SmallVector<llvm::StringRef> words(argv + 1, argv + argc);
  if (llvm::is_contained(words, "--help") || llvm::is_contained(words, "-h")) {
    llvm::outs() << cli::helpText(calibrate::kSyntax);
    return 0;
  }
  auto command = [&]() -> llvm::Error {
    auto arguments = cli::Arguments::parse(calibrate::kSyntax, words);
    return arguments ? calibrate::run(*arguments) : arguments.takeError();
  };
  int code = 0;
  llvm::handleAllErrors(
      command(),
      [&](const cli::Failure &failure) {
        code = int(failure.code);
        llvm::errs() << "megalith-calibrate: error: " << failure.message() << "\n";
      },
      [&](const llvm::ErrorInfoBase &other) {
        code = int(cli::Exit::Run);
        llvm::errs() << "megalith-calibrate: error: " << other.message() << "\n";
      });
  return code;
}
