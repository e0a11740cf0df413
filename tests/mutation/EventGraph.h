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
    int copyEdge = -1;    ///< of a bulk copy's write
    int64_t copyUse = -1; ///< likewise
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
  std::vector<std::pair<task::AccessAttr, bool>> accessesOf(mlir::Operation *op) const;
  std::string placeOf(int node) const;
  std::string keyOf(int node) const;
  bool fail(const llvm::Twine &text, int node = -1);

  bool checkDeclarations();
  bool joinEdges(int64_t sm);
  bool close(int64_t sm);
  bool isBefore(int a, int b) const; ///< of one SM: a is over before b, or is b
  /// Whether the numbers that a call is given, if it is given any, name the access's slot: an
  /// edge's is that of the use which the role waited for last.
  bool namesSlot(int node, const Access &access, task::BufferOp buffer,
                 llvm::ArrayRef<int64_t> waited) const;
  bool hasLanded(const Access &copy, int node) const;
  bool checkPhases(int64_t sm);
  bool checkMemory(int64_t sm);
  bool checkPair(const Access &a, const Access &b, llvm::StringRef what);
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
  std::vector<task::EdgeOp> edges;
  llvm::DenseMap<mlir::StringAttr, mlir::Operation *> decls;
  llvm::DenseMap<mlir::StringAttr, int> edgeIndex;
  std::vector<Node> nodes;
  std::vector<std::vector<int>> ofSm; ///< nodes
  std::vector<std::array<std::vector<int>, 4>> ofRole;
  std::vector<std::vector<EdgeUses>> uses;      ///< by SM and edge
  std::vector<std::vector<uint64_t>> ancestors; ///< by node: bits over its SM's nodes
  std::vector<int> localIndex;                  ///< by node
  /// By step and place among its accesses, in the first turns of its loops: what filled anew that
  /// which it reads.
  std::map<std::tuple<mlir::Operation *, int64_t, size_t>, mlir::Operation *> sources;
  llvm::StringMap<int> places; ///< nodes, once somebody asked for a way
};

} // namespace megalith::mutation
