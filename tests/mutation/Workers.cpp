#include "tests/mutation/Workers.h"

#include "llvm/ADT/SmallVector.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <new>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

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
  // All at once: a pipe that is full would hold its worker up until the others end.
  llvm::SmallVector<pollfd> open;
  for (const Worker &worker : all)
    open.push_back({worker.reads, POLLIN, 0});
  std::vector<std::string> said(all.size());
  char buffer[4096];
  for (size_t left = all.size(); left > 0;) {
    if (poll(open.data(), open.size(), /*timeout=*/-1) < 0 && errno != EINTR) {
      isWhole = false;
      break;
    }
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].fd < 0 || open[i].revents == 0)
        continue;
      const ssize_t count = read(open[i].fd, buffer, sizeof buffer);
      if (count > 0) {
        said[i].append(buffer, size_t(count));
      } else {
        open[i].fd = -1; // which poll leaves out
        --left;
      }
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    close(all[i].reads);
    int status = 0;
    isWhole &= waitpid(all[i].process, &status, 0) == all[i].process && WIFEXITED(status) &&
               WEXITSTATUS(status) == 0;
    takeLines(said[i], take);
  }
  munmap(shared, sizeof(std::atomic<size_t>));
  return isWhole && !all.empty();
}
