//===- RealModel.h - A compiled model at real size on a GPU ------*- C++ -*-===//
//
// Weights and histories are made up by the GPU itself, so that 60 GB take seconds.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TESTS_GPU_REALMODEL_H
#define MEGALITH_TESTS_GPU_REALMODEL_H

#include "models/Import.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "tools/bench/FilledBackend.h"
#include "tools/check/Session.h"

#include <memory>
#include <string>

namespace megalith::test {

/// What a model's name says of its experts: NVFP4 weights if it ends in "-nvfp4", quantised
/// activations too if in "-w4a4"; and of its cache: e4m3 if it ends in "-kv8". That an artifact has
/// NVFP4 weights or e4m3 pages its plan says as well.
models::Quantization quantizationOf(llvm::StringRef model);

/// An artifact and the graph of its model.
struct Artifact {
  runtime::Plan plan;
  std::string folder;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> graph;

  /// `folder` is <model>/<target>/rows<n>; <model>/config.json is the model's.
  static llvm::Expected<std::unique_ptr<Artifact>> load(const std::string &folder);
};

/// An artifact on this machine's first GPU.
class RealModel {
public:
  static llvm::Expected<std::unique_ptr<RealModel>> create(const Artifact &artifact);

  /// With room for `workload`. Sessions of one model share weights and pools: one at a time, the
  /// one with the largest pool first.
  llvm::Expected<std::unique_ptr<check::Session>> session(const check::Workload &workload,
                                                          check::SessionOptions options);
  runtime::CudaBackend &backend() { return *cuda; }
  const runtime::Nvrtc &compiler() const { return *nvrtc; }

private:
  explicit RealModel(const Artifact &artifact) : artifact(artifact) {}
  llvm::Error fillHistory(int64_t layer, uint32_t seed, const check::Sequence &sequence,
                          std::span<const int32_t> pages);

  static constexpr uint32_t kSeed = 1;
  static constexpr int64_t kTablePages = 4096;

  const Artifact &artifact;
  std::optional<runtime::Nvrtc> nvrtc;
  std::unique_ptr<runtime::CudaBackend> cuda; // the rest holds on to it
  std::unique_ptr<runtime::DeviceFill> fill;
  std::unique_ptr<bench::FilledBackend> filled;
  runtime::Driver::Address table = 0; ///< a page table for fills
};

/// `rows` sequences with one new row each behind `context` positions.
check::Workload steadyWorkload(int64_t rows, int64_t context);

} // namespace megalith::test

#endif // MEGALITH_TESTS_GPU_REALMODEL_H
