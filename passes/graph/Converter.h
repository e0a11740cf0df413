// moe-convert-to-task, one launch function at a time: ConvertToTask.cpp drives and knows values,
// norms and linears; ConvertAttention.cpp attention and its gate; ConvertStream.cpp the ends of the
// model and residuals; ConvertExperts.cpp routing and experts.
#pragma once

#include "passes/graph/StageBuilder.h"

#include "llvm/ADT/StringMap.h"

namespace megalith::graph {

class Converter {
public:
  Converter(mlir::func::FuncOp function, task::KernelOp kernel, int64_t rows)
      : function(function), module(function->getParentOfType<mlir::ModuleOp>()),
        build(kernel, rows) {}

  llvm::LogicalResult run();

private:
  using Keys = llvm::SmallVector<mlir::NamedAttribute>;
  using Ref = mlir::FlatSymbolRefAttr;

  // ConvertToTask.cpp
  void declareArguments();
  llvm::LogicalResult convert(mlir::Operation &op);
  llvm::LogicalResult convertNorm(moe::NormOp op);
  llvm::LogicalResult convertCast(moe::CastOp op);
  llvm::LogicalResult convertQkv(moe::QkvProjOp op);
  llvm::LogicalResult convertLinear(moe::LinearOp op);
  llvm::LogicalResult convertReturn(mlir::func::ReturnOp op);
  /// The rows a gemv stage reads: a read of them with the norm to apply, or the earlier stage that
  /// left the same rows in shared memory.
  llvm::LogicalResult addInput(mlir::Operation *op, mlir::Value input, llvm::StringRef stageName,
                               llvm::SmallVectorImpl<mlir::Attribute> &reads, Keys &keys);
  /// A linear stage over `weights` from `input` to `target`; `more`: its keys beside the usual;
  /// `sum`: the residual that its epilogue adds.
  llvm::LogicalResult addLinear(mlir::Operation *op, llvm::StringRef name, mlir::Value input,
                                Ref weights, int64_t n, int64_t k, llvm::StringRef epilogue,
                                Ref target, const Source *residual = nullptr,
                                llvm::ArrayRef<mlir::NamedAttribute> more = {},
                                mlir::Operation *sum = nullptr);
  /// Linears of the projections' input whose results leave the launch with q, k and v.
  llvm::SmallVector<moe::LinearOp> besideProjections(moe::QkvProjOp op);
  Ref gainOf(moe::WeightOp gain, bool isNext, bool isOnePlus);

  // Reasons, ConvertToTask.cpp
  static void explain(task::StageOp stage, llvm::StringRef what, const llvm::Twine &chose,
                      const llvm::Twine &because);
  static void explainQuantized(task::StageOp stage);
  /// `ops` of the graph that the stage computes beside its own.
  static void explainFused(task::StageOp stage, llvm::ArrayRef<mlir::Operation *> ops,
                           const llvm::Twine &because);
  /// Where the rows of a stage come from that addInput gave `keys`.
  static void explainInput(task::StageOp stage, llvm::ArrayRef<mlir::NamedAttribute> keys,
                           moe::NormOp norm);

  // ConvertAttention.cpp
  llvm::LogicalResult convertAttention(moe::AttentionOp op);
  /// What follows attention before anything is rounded.
  struct GatedOutput {
    mlir::Value result;
    moe::NormOp norm;
    moe::OutputGateOp gate;
  };
  llvm::FailureOr<GatedOutput> outputOf(moe::AttentionOp op);
  int64_t mergePartsOf(int64_t heads);

  // ConvertStream.cpp
  llvm::LogicalResult convertEmbed(moe::EmbedOp op);
  llvm::LogicalResult convertResidual(moe::ResidualOp op);
  llvm::LogicalResult convertHead(moe::LmHeadOp op);
  /// A stage that leaves rows of an fp32 stream normed by `norm` in shared memory; with `residual`
  /// of the stream that it makes.
  llvm::LogicalResult addRows(mlir::Operation *op, const Source &stream, moe::NormOp norm,
                              bool isRounded, moe::ResidualOp residual);
  llvm::LogicalResult addBranch(moe::ResidualOp residual,
                                llvm::SmallVectorImpl<mlir::Attribute> &reads, Keys &keys);
  /// The plain bf16 residual that is the only reader of `branch`, with the stream it adds to.
  moe::ResidualOp onlyResidual(mlir::Value branch);
  /// Where a sum of residual and branch goes: across the boundary if the launch returns it.
  Ref residualTarget(mlir::Value result);

  // ConvertExperts.cpp
  llvm::LogicalResult convertRouter(moe::RouterOp op);
  llvm::LogicalResult convertTopK(moe::TopKOp op);
  llvm::LogicalResult convertGlu(moe::GluOp op);
  llvm::LogicalResult convertExpertDown(moe::ExpertDownOp op);
  /// Whether `rows`, what experts' matrices `weights` read, are quantised; `rows` becomes what is.
  /// `ids`: of the pairs that the rows are of; null: they are shared by all experts.
  llvm::FailureOr<bool> readsQuantized(mlir::Value &rows, mlir::Value ids,
                                       llvm::ArrayRef<moe::WeightOp> weights);
  llvm::LogicalResult convertNormedExperts(moe::ExpertDownOp op, const Source &act, Ref weights,
                                           Keys keys);

  // Values
  static int64_t width(mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType()).getDimSize(1);
  }
  static bool isF32(mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType()).getElementType().isF32();
  }
  static bool isNext(mlir::Operation *op) { return op->hasAttr(kNextAttr); }
  static bool isReturned(mlir::Value value) {
    return llvm::any_of(value.getUsers(), [](mlir::Operation *user) {
      return mlir::isa<mlir::func::ReturnOp>(user);
    });
  }
  moe::WeightOp weight(llvm::StringRef name) { return module.lookupSymbol<moe::WeightOp>(name); }
  /// The one reader of a value, if it is an OpT.
  template <class OpT> static OpT onlyReader(mlir::Value value) {
    return value.hasOneUse() ? mlir::dyn_cast<OpT>(*value.getUsers().begin()) : OpT();
  }
  llvm::FailureOr<Source> sourceOf(mlir::Operation *reader, mlir::Value value);
  Ref crossing(llvm::StringRef name, int64_t cols, mlir::Type element);
  Ref resid(mlir::Value stream);
  llvm::LogicalResult refuse(mlir::Operation *op, const llvm::Twine &what) {
    return op->emitOpError() << "has no kernel form yet: " << what;
  }
  /// Refuses sizes that the device headers have no loop for: rows travel as vectors of 16 bytes,
  /// results as words.
  llvm::LogicalResult expectMultiple(mlir::Operation *op, llvm::StringRef what, int64_t size,
                                     int64_t of);

  mlir::func::FuncOp function;
  mlir::ModuleOp module;
  StageBuilder build;
  llvm::StringRef kind;
  llvm::DenseMap<mlir::Value, Source> sources;
  llvm::StringMap<Ref> crossings;
  llvm::DenseMap<std::pair<mlir::Operation *, unsigned>, Ref> gains;
  /// The activation rows the last stage that brought any left in shared memory, and that stage.
  struct {
    mlir::Value value;
    Ref stage;
  } rowsInSmem;
  /// Routing waits for all SMs, so what does not need it goes before.
  moe::TopKOp waitingTopK;
};

} // namespace megalith::graph
