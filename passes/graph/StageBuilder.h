// Builds one task.kernel: declarations with slots, and stages at stage level
// (docs/kernel-contract.md section 7).
#pragma once

#include "passes/graph/GraphPasses.h"

namespace megalith::graph {

/// Where an SSA value of the moe graph lives between stages.
struct Source {
  mlir::FlatSymbolRefAttr buffer;
  task::Set set = task::Set::Current;
  /// The norm still to be applied by whoever reads the rows, or null.
  moe::NormOp norm;
  /// Of an fp32 stream: whoever reads it rounds it to bf16 first.
  bool isRounded = false;
};

class StageBuilder {
public:
  StageBuilder(task::KernelOp kernel, int64_t rows);

  /// Declarations. Names are made unique by a number; slots count up from 0.
  mlir::FlatSymbolRefAttr value(llvm::StringRef name, int64_t rows, int64_t cols,
                                mlir::Type element, bool isCrossing);
  mlir::FlatSymbolRefAttr global(llvm::StringRef name, int64_t rows, int64_t cols,
                                 mlir::Type element, task::Mutability mutability,
                                 llvm::StringRef checkpoint = "", bool isNext = false,
                                 mlir::DictionaryAttr load = {});
  /// A matrix packed from `tensors`, whose format it has; NVFP4 is part of its name, since layers
  /// of one model may differ in it. Fails with an error at the tensor that has no form.
  llvm::FailureOr<mlir::FlatSymbolRefAttr> weights(llvm::StringRef name, int64_t n, int64_t k,
                                                   int64_t experts, task::Pairing pairing,
                                                   llvm::ArrayRef<moe::WeightOp> tensors,
                                                   bool isNext, bool isWide = false);

  /// Accesses of the one tile that a stage has yet: the whole of a buffer, or of weights.
  task::AccessAttr whole(const Source &source);
  task::AccessAttr whole(mlir::FlatSymbolRefAttr buffer) { return whole(Source{buffer}); }

  task::StageOp stage(llvm::StringRef name, task::StageKind kind, mlir::Operation *from,
                      llvm::ArrayRef<mlir::Attribute> reads, llvm::ArrayRef<mlir::Attribute> writes,
                      llvm::ArrayRef<mlir::NamedAttribute> config, bool hasStaticTiles);

  mlir::NamedAttribute key(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute key(llvm::StringRef name, double value);
  mlir::NamedAttribute key(llvm::StringRef name, llvm::StringRef value);
  mlir::NamedAttribute key(llvm::StringRef name, mlir::Attribute value);

  /// Of `load` of a buffer.
  mlir::DictionaryAttr dictionary(llvm::ArrayRef<mlir::NamedAttribute> entries) {
    return builder.getDictionaryAttr(entries);
  }
  /// Element type of a value or buffer.
  mlir::Type elementOf(const Source &source);

  mlir::Type bf16() { return builder.getBF16Type(); }
  mlir::Type f32() { return builder.getF32Type(); }
  int64_t rows() const { return rowsBucket; }
  int64_t sms() { return kernel.getSms(); }

private:
  std::string unique(llvm::StringRef name);

  task::KernelOp kernel;
  mlir::OpBuilder builder;
  int64_t rowsBucket;
  int64_t nextSlot = 0;
};

} // namespace megalith::graph
