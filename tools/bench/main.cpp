//===- main.cpp - megalith-bench: timing where only a driver is -------------===//
//
// `megalith bench` of artifacts, without the compiler: small, and it runs where there is a driver,
// an NVRTC and a glibc.
//
//===----------------------------------------------------------------------===//

#include "tools/bench/CommandLine.h"

#include "llvm/Support/raw_ostream.h"

using namespace megalith;

int main(int argc, char **argv) {
  llvm::SmallVector<llvm::StringRef> words(argv + 1, argv + argc);
  if (llvm::is_contained(words, "--help") || llvm::is_contained(words, "-h")) {
    llvm::outs() << cli::helpText(bench::kFolderSyntax);
    return 0;
  }
  auto bench = [&]() -> llvm::Error {
    auto arguments = cli::Arguments::parse(bench::kFolderSyntax, words);
    if (!arguments)
      return arguments.takeError();
    auto request = bench::readRequest(*arguments);
    if (!request)
      return request.takeError();
    return bench::run(std::move(*request), arguments->positional());
  };
  int code = 0;
  llvm::handleAllErrors(
      bench(),
      [&](const cli::Failure &failure) {
        code = int(failure.code);
        llvm::errs() << "megalith-bench: error: " << failure.message() << "\n";
      },
      [&](const llvm::ErrorInfoBase &other) {
        code = int(cli::Exit::Run);
        llvm::errs() << "megalith-bench: error: " << other.message() << "\n";
      });
  return code;
}
