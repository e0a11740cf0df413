// Runs a kernel's role regions abstractly: no values, only waits, signals and accesses.
//
// A kernel is a Kahn network: no role chooses by what it happens to see, so every schedule reaches
// the same end. One run therefore decides, for one valuation of the symbols,
//   * deadlock: nothing can move although a role is not done;
//   * order: a vector clock per (SM, role) says which accesses are ordered by the edges emitted;
//   * completeness: each word, output element and streamed block exactly once.
// Words carry no order for other memory: SMs are joined by them for progress, never for the clocks.
#pragma once

#include "passes/verify/Coverage.h"
#include "passes/verify/Program.h"

#include "llvm/ADT/MapVector.h"
#include <array>
#include <deque>

namespace megalith::verify {

inline constexpr int kRoles = 4;
using Clock = std::array<int64_t, kRoles>;

/// A kernel's declarations by name, looked up millions of times a proof, and what shares bytes with
/// what.
class Declarations {
public:
  explicit Declarations(task::KernelOp kernel);

  /// The declaration of that name, or null if there is none of that kind.
  template <typename OpT> OpT lookup(mlir::FlatSymbolRefAttr ref) const {
    return ref ? llvm::dyn_cast_or_null<OpT>(find(ref)) : OpT();
  }
  mlir::Operation *find(mlir::FlatSymbolRefAttr ref) const { return byName.lookup(ref.getAttr()); }
  /// Other shared-memory buffers planned over some of the same bytes.
  llvm::ArrayRef<task::BufferOp> overlapping(task::BufferOp buffer) const {
    auto it = overlaps.find(buffer);
    return it == overlaps.end() ? llvm::ArrayRef<task::BufferOp>() : it->second;
  }

private:
  llvm::DenseMap<mlir::StringAttr, mlir::Operation *> byName;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<task::BufferOp>> overlaps;
};

/// Runs `kernel` under `valuation`; reports every fault found (at most a few of a kind) on its ops.
class Machine {
public:
  Machine(task::KernelOp kernel, const Declarations &names, const Valuation &valuation);
  mlir::LogicalResult run();

private:
  /// One (SM, role): its program, where it stands, what it knows.
  struct Thread {
    int64_t sm;
    task::Role role;
    std::vector<Step> steps;
    size_t next = 0;
    Clock clock{};
    bool hasLaunchWaited = false;
    bool done() const { return next == steps.size(); }
  };
  /// An edge on one SM. Use numbers count from 0; a role's n-th wait is for use n.
  struct EdgeState {
    int64_t signals = 0;
    std::deque<Clock> completed;                        // by use: what the signaller knew
    std::array<int64_t, kRoles> waits{};                // uses waited for, by role
    std::array<std::vector<int64_t>, kRoles> waitClock; // own clock at each wait, by role
  };
  /// One access to shared memory.
  struct Record {
    task::Role role;
    int64_t clock;
    Rect rect;
    bool isWrite;
    mlir::Operation *op;
  };
  /// A shared-memory buffer, or the ring, on one SM.
  struct Memory {
    std::map<int64_t, std::vector<Record>> slots;
    std::map<int64_t, Coverage> fillings; // by use of the guard
  };
  struct SmState {
    llvm::DenseMap<mlir::Operation *, EdgeState> edges;
    llvm::DenseMap<mlir::Operation *, Memory> memory;
    llvm::DenseMap<mlir::Operation *, int64_t> ringReads; // ring uses read at least once
  };

  bool step(Thread &thread);
  bool waitFor(Thread &thread, task::EdgeOp edge, int64_t slotsFree);
  void signal(Thread &thread, task::EdgeOp edge, mlir::Operation *op);
  bool poll(Thread &thread, task::PollOp poll, const Step &step);
  bool checkBounds(const Thread &thread, const Step &step, task::AccessAttr access,
                   const Rect &rect, int64_t rows, int64_t cols);
  void access(Thread &thread, const Step &step, task::AccessAttr access, bool isWrite);
  void accessSmem(Thread &thread, const Step &step, task::BufferOp buffer, const Rect &rect,
                  bool isWrite);
  void accessRing(Thread &thread, const Step &step, task::RingOp ring, bool isWrite);
  void order(Thread &thread, const Step &step, mlir::Operation *memory, int64_t slot,
             const Record &record);
  void publish(Thread &thread, const Step &step, task::ExchangeOp exchange, task::AccessAttr access,
               const Rect &rect);
  Coverage::Key keyOf(task::AccessAttr access, const Step &step, int64_t sm);
  Coverage &coverage(mlir::Operation *decl, int64_t rows, int64_t cols);
  void requireLaunchWait(Thread &thread, mlir::Operation *op, llvm::StringRef what);
  void reportBlocked();
  void checkEnds();
  void checkUses(int64_t sm);
  mlir::InFlightDiagnostic fault(mlir::Operation *op, int64_t sm);

  task::KernelOp kernel;
  const Declarations &names;
  std::vector<Thread> threads;
  std::vector<SmState> sms;
  llvm::MapVector<mlir::Operation *, Coverage> written;      // exchanges, outputs, weights
  llvm::DenseMap<mlir::Operation *, int64_t> publishersLeft; // steps that still publish an exchange
  llvm::DenseMap<mlir::Operation *, mlir::Operation *>
      polled; // exchange → a poll of its current set
  llvm::DenseMap<mlir::Operation *, std::vector<int64_t>> rearmed; // exchange → times, by SM
  std::vector<int64_t> dependentsLaunched;                         // by SM
  llvm::DenseMap<mlir::Operation *, int> reports;                  // faults reported per op
  bool hasFailed = false;
};

} // namespace megalith::verify
