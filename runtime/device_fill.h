//===- device_fill.h - Made-up weights and KV pages on the GPU ---*- C++ -*-===//
//
// Runs runtime/device_fill.cuh: what a benchmark or a check at real size fills 60 GB with. The
// bytes are those that WeightPacker makes of models::HashedWeights.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_DEVICE_FILL_H
#define MEGALITH_RUNTIME_DEVICE_FILL_H

#include "runtime/device_fill.cuh"
#include "runtime/driver.h"
#include "runtime/nvrtc.h"
#include "runtime/plan.h"

#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <optional>
#include <span>

namespace megalith::runtime {

/// Include name -> text of what device_fill.cuh needs to be compiled.
const std::map<llvm::StringRef, llvm::StringRef> &deviceFillHeaders();

/// What the kernel must know to fill segment `segment` of a weight of one layer at `out`. None
/// where only the host can: tensors transformed otherwise than by slices and by pairing the rows of
/// their halves, elements that are neither bf16 nor NVFP4, inverse frequencies.
std::optional<FillSegment> fillSegment(const Weight &weight, int64_t layer, int64_t segment,
                                       uint32_t seed, unsigned char *out);

/// The same for the KV pages of one sequence with `start` positions; its page table of `count`
/// pages (Executor::kvPages: of a layer with a window those of its ring) is behind `pages`, in the
/// kernel's memory. A ring's pages hold the last positions.
FillPages fillPages(const Plan &plan, int64_t layer, uint32_t seed, unsigned char *pool,
                    const int32_t *pages, int64_t count, int64_t start);

/// The kernels, loaded.
class DeviceFill {
public:
  /// Compiles them for `target` ("sm_90a"); `driver` must outlive the object.
  static llvm::Expected<std::unique_ptr<DeviceFill>> create(Driver &driver, const Nvrtc &nvrtc,
                                                            llvm::StringRef target);
  ~DeviceFill();
  DeviceFill(const DeviceFill &) = delete;

  /// Puts one fill into the driver's stream.
  llvm::Error fill(const FillSegment &segment);
  llvm::Error fill(const FillPages &pages);

private:
  explicit DeviceFill(Driver &driver) : driver(driver) {}

  Driver &driver;
  Driver::Module module = nullptr;
  Driver::Function segmentKernel = nullptr, pagesKernel = nullptr;
};

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_DEVICE_FILL_H
