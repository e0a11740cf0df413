#include "tests/mutation/Workers.h"

#include "llvm/ADT/SmallVector.h"

#include <atomic>
#include <cstdio>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace megalith;

namespace {

void takeLines(llvm::StringRef text, llvm::function_ref<void(llvm::StringRef)> take) {
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    take(line);
    text = rest;
  }
}

bool writeWhole(int file, llvm::StringRef text) {
  while (!text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count <= 0)
      return false;
    text = text.drop_front(size_t(count));
  }
  return true;
}

} // namespace

bool mutation::dealOut(size_t jobs, unsigned workers, llvm::function_ref<std::string(size_t)> work,
                       llvm::function_ref<void(llvm::StringRef)> take) {
  if (workers <= 1) {
    for (size_t job = 0; job < jobs; ++job)
      takeLines(work(job), take);
    return true;
  }
  // The number of the next job is all that the processes share.
  void *shared = mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    return false;
  auto *next = new (shared) std::atomic<size_t>(0);
  struct Worker {
    pid_t process;
    int reads;
  };
  llvm::SmallVector<Worker> all;
  bool isWhole = true;
  std::fflush(nullptr);
  for (unsigned i = 0; i < workers; ++i) {
    int ends[2];
    if (pipe(ends) != 0) {
      isWhole = false;
      break;
    }
    const pid_t process = fork();
    if (process == 0) {
      close(ends[0]);
      bool isSaid = true;
      for (size_t job; isSaid && (job = next->fetch_add(1)) < jobs;)
        isSaid = writeWhole(ends[1], work(job));
      std::fflush(nullptr);
      _exit(isSaid ? 0 : 1);
    }
    close(ends[1]);
    if (process < 0) {
      close(ends[0]);
      isWhole = false;
      break;
    }
    all.push_back({process, ends[0]});
  }
  for (const Worker &worker : all) {
    std::string said;
    char buffer[4096];
    for (ssize_t count; (count = read(worker.reads, buffer, sizeof buffer)) > 0;)
      said.append(buffer, size_t(count));
    close(worker.reads);
    int status = 0;
    isWhole &= waitpid(worker.process, &status, 0) == worker.process && WIFEXITED(status) &&
               WEXITSTATUS(status) == 0;
    takeLines(said, take);
  }
  munmap(shared, sizeof(std::atomic<size_t>));
  return isWhole && !all.empty();
}
