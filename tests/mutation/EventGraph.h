// A second opinion on a kernel, by other means than passes/verify and without its code: every step
// of every SM of every rank is a node of one graph, every order that an edge gives an arrow; what
// must be ordered is looked up in the graph's transitive closure.
#pragma once

#include "ir/task/Task.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace megalith::mutation {

/// [row, rowEnd) x [col, colEnd).
struct Area {
  int64_t row, rowEnd, col, colEnd;
  bool empty() const { return row >= rowEnd || col >= colEnd; }
  bool meets(const Area &other) const {
    return row < other.rowEnd && other.row < rowEnd && col < other.colEnd && other.col < colEnd;
  }
};

/// Whether `area` is covered by the union of the others.
bool isCovered(const Area &area, llvm::ArrayRef<Area> by);

class EventGraph {
public:
  /// The kernel with every symbol at the least of its largest value and `most`.
  EventGraph(task::KernelOp kernel, int64_t most);

  /// What is not as it must be, the first found; "" if all is well.
  std::string fault();

  struct Node {
    int64_t sm; ///< counted through all ranks
    int role;
    int64_t launch;
    mlir::Operation *op;
    llvm::SmallVector<int64_t, 5> dims; ///< the SM of its rank, loop indices
    llvm::SmallVector<int, 3> before;   ///< nodes of the same SM that are over before this one
    llvm::SmallVector<int, 2> needs;    ///< nodes of other SMs without which it does not pass
    int64_t use = -1;                   ///< of the edge it waits for or signals
    int edge = -1;
  };

  /// Steps are named by where, when and whose they are, and by their locations: give each step of a
  /// kernel one of its own, and its copies have the same.
  struct Arrow {
    std::string from, to; ///< keys of steps of different roles
    std::string edge;     ///< that orders them
  };
  /// After fault() found nothing: what edges order.
  std::vector<Arrow> arrows() const;
  /// After fault() found nothing: the edges on a way from one step to another, by name; "" for
  /// program order alone; nothing if there is no way, or no such step.
  std::optional<std::string> way(const std::string &from, const std::string &to);

private:
  struct Access {
    int node;
    bool isWrite;
    Area area;
    int64_t filling, slot;
    int copyEdge = -1;       ///< of a bulk copy's write
    int64_t copyUse = -1;    ///< likewise
    bool isRefilled = false; ///< a refill of the buffer came before
  };
  /// Of one buffer on one SM.
  struct Accesses {
    std::vector<Access> all;
    std::array<std::vector<Access>, 4> writes; ///< by role, in its order
    std::vector<Access> copies;                ///< bulk copies into it
  };
  /// What a step is said to touch.
  struct Touch {
    task::AccessAttr access;
    bool isWrite;
    mlir::Operation *decl;
    std::optional<task::Axiom> axiom; ///< of the table that names rows
  };
  struct Edge {
    task::EdgeOp op;
    int64_t slots;
    bool isGlobal;
    int from;
    llvm::SmallVector<int, 3> to; ///< roles
    bool waits(int role) const { return llvm::is_contained(to, role); }
  };
  struct EdgeUses {
    std::vector<int> signals;              ///< nodes, by use
    std::array<std::vector<int>, 4> waits; ///< by role
  };

  void build();
  void walk(mlir::Block &block, task::StageOp stage, int role, int64_t sm, int64_t launch,
            llvm::SmallVectorImpl<int64_t> &dims);
  void addStep(mlir::Operation *op, task::StageOp stage, int role, int64_t sm, int64_t launch,
               llvm::ArrayRef<int64_t> dims);
  int64_t tripsOf(task::ForOp loop, llvm::ArrayRef<int64_t> dims);
  int64_t evaluate(mlir::AffineExpr expr, llvm::ArrayRef<int64_t> dims) const;
  int64_t leastOf(mlir::AffineMap map, llvm::ArrayRef<int64_t> dims) const;
  Area areaOf(task::AccessAttr access, llvm::ArrayRef<int64_t> dims) const;
  int64_t rankOf(int node) const { return nodes[node].sm / sms; }
  /// Of an access to an exchange, whose columns may be counted from where the rank's share begins.
  Area wordsOf(int node, task::AccessAttr access) const;
  const std::vector<Touch> &touchesOf(mlir::Operation *op);
  std::string placeOf(int node) const;
  std::string keyOf(int node) const;
  bool fail(const llvm::Twine &text, int node = -1);

  bool checkDeclarations();
  bool joinEdges(int64_t sm);
  std::vector<int64_t> doingsOf(int64_t sm);
  bool close(int64_t sm);
  /// Of one SM: a is over before b, or is b.
  bool isBefore(int a, int b) const { return inRole[a].index < over[b][inRole[a].role]; }
  /// The edges that the numbers which a call is given are of.
  const std::vector<int> &numbersOf(mlir::Operation *call);
  /// Whether the numbers that a call is given, if it is given any, name the slot of a buffer: an
  /// edge's is that of the use which the role waited for last.
  bool namesSlot(mlir::Operation *call, int64_t slot, int64_t slots,
                 llvm::ArrayRef<int64_t> waited);
  bool hasLanded(const Access &copy, int node) const;
  bool checkPhases(int64_t sm);
  bool checkMemory(int64_t sm);
  /// Whether one of two accesses of the same bytes is over before the other.
  bool checkPair(const Access &a, const Access &b, llvm::StringRef what);
  /// Whether the access and the writes of a buffer with which it is in conflict are in order.
  bool checkOrders(const Access &a, const Accesses &of,
                   llvm::function_ref<bool(const Access &)> conflict, llvm::StringRef what);
  /// `met`: by step of the consumers, how many of them all warps are known to have come through.
  bool haveMet(const Access &a, const Accesses &of, llvm::ArrayRef<int> met) const;
  bool checkRing(int64_t sm);
  bool checkLaunches(int64_t sm);
  bool checkWords();
  bool checkArmed();
  bool checkPlaces();
  bool checkProgress();

  task::KernelOp kernel;
  int64_t most, sms, ranks; ///< SMs of one rank
  bool isLooping;
  std::string problem;
  std::vector<Edge> edges;
  llvm::DenseMap<mlir::StringAttr, mlir::Operation *> decls;
  llvm::DenseMap<mlir::StringAttr, int> edgeIndex;
  // By op: what each of its nodes is asked again.
  std::unordered_map<mlir::Operation *, std::vector<Touch>> touches;
  std::unordered_map<mlir::Operation *, std::vector<int>> numbers;
  std::vector<Node> nodes;
  std::vector<std::vector<int>> ofSm; ///< nodes
  std::vector<std::array<std::vector<int>, 4>> ofRole;
  std::vector<std::vector<EdgeUses>> uses; ///< by SM and edge
  /// The transitive closure. What is before a node is, of each role's line, all up to somewhere: by
  /// node and role, how many steps of its SM are over before it or are it.
  std::vector<std::array<int, 4>> over;
  struct InRole {
    int role, index; ///< in the role's line
  };
  std::vector<InRole> inRole; ///< by node
  /// By step and place among its accesses, in the first turns of its loops: what filled anew that
  /// which it reads.
  std::map<std::tuple<mlir::Operation *, int64_t, size_t>, mlir::Operation *> sources;
  llvm::StringMap<int> places; ///< nodes, once somebody asked for a way
};

} // namespace megalith::mutation
