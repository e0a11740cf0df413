//===- Emitter.cpp - From a kernel's role regions to CUDA C++ ---------------===//

#include "codegen/Emitter.h"

#include "codegen/Declarations.h"
#include "codegen/Names.h"
#include "codegen/Regions.h"
#include "codegen/Writer.h"
#include "codegen/headers.h"
#include "passes/why/Why.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith {

std::string kernelDigest(KernelOp kernel) {
  // Reasons change nothing that is emitted.
  OwningOpRef<KernelOp> bare = kernel.clone();
  dropReasons(*bare);
  std::string text;
  llvm::raw_string_ostream stream(text);
  bare->print(stream, OpPrintingFlags().enableDebugInfo(false).useLocalScope());
  return llvm::utohexstr(llvm::xxh3_64bits(text), /*LowerCase=*/true, /*Width=*/16);
}

static LogicalResult checkNames(KernelOp kernel, const DeviceNames &device) {
  LogicalResult result = success();
  kernel.walk([&](SymbolOpInterface op) {
    if (isa<SymbolOp, TableOp>(op)) // printed as their expressions, or not at all
      return;
    if (const std::string why = whyNotAName(op.getName(), device); !why.empty()) {
      op->emitOpError() << "expected a name that its C++ form can have, but `" << op.getName()
                        << "` " << why << ": rename it";
      result = failure();
    }
  });
  auto checkLocal = [&](Operation *op, StringRef name) {
    if (!SymbolTable::lookupSymbolIn(kernel, name))
      return;
    op->emitOpError() << "expected a name that no declaration of the kernel has, but `" << name
                      << "` would hide one: rename it";
    result = failure();
  };
  kernel.walk([&](ForOp op) { checkLocal(op, op.getIndex()); });
  kernel.walk([&](LocalOp op) { checkLocal(op, op.getName()); });
  return result;
}

static void emitBanner(KernelOp kernel, const EmitOptions &options, Writer &out) {
  out.comment(("Kernel " + kernel.getSymName() + " (" + kernel.getKind() + ") for " +
               kernel.getTarget() + ", " + Twine(kernel.getSms()) + " SMs, at most " +
               Twine(kernel.getRows()) + (kernel.getRows() == 1 ? " row" : " rows") +
               (kernel.getRanks() > 1 ? ", one of " + Twine(kernel.getRanks()) + " ranks." : "."))
                  .str());
  out.comment("Emitted by Megalith from role regions; change what it was compiled from, not this.");
  auto line = [&](StringRef key, StringRef value) {
    if (!value.empty())
      out.comment((key + std::string(12 - key.size(), ' ') + value).str(), 12);
  };
  line("Origin", options.origin);
  line("Pipeline", options.pipeline);
  if (options.digests) {
    line("IR", kernelDigest(kernel));
    line("Headers", deviceHeadersDigest());
  }
  line("Regenerate", options.regenerate);
}

static void emitKernelFunction(KernelOp kernel, Writer &out) {
  if (kernel.isLooping())
    out.open("MEGALITH_STEP_KERNEL(" + kernel.getSymName() + ", " + Twine(*kernel.getLaunches()) +
             ", " + Twine(*kernel.getLayered()) + ") {");
  else if (kernel.getRanks() > 1)
    out.open("MEGALITH_RANKS_KERNEL(" + kernel.getSymName() + ", " + Twine(kernel.getRanks()) +
             ", " + Twine(kernel.peerExchanges().size()) + ") {");
  else
    out.open((kernel.getResidents() > 1 ? "MEGALITH_KERNEL_OF_TWO(" : "MEGALITH_KERNEL(") +
             kernel.getSymName() + ") {");
  std::string edges;
  llvm::interleave(
      mbarrierEdges(kernel), [&](EdgeOp edge) { edges += edge.getSymName(); },
      [&] { edges += ", "; });
  out.line("make_barriers<" + edges + ">();");
  out.line("Cta cta(args);");
  out.line("start_delay(cta);");
  out.line("setup(cta);");
  if (kernel.getTrace())
    out.line("trace_begin(cta);");
  out.line("switch (cta.role) {");
  for (Role role : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue}) {
    out.open("case Role::" + stringifyRole(role) + ":");
    out.line((kernel.getTrace() ? "" : "return ") + stringifyRole(role) + "(cta);");
    if (kernel.getTrace())
      out.line("break;");
    out.dedent();
  }
  out.line("}");
  if (kernel.getTrace())
    out.line("trace_end(cta);");
  out.close("}");
}

FailureOr<std::string> emitKernel(KernelOp kernel, const EmitOptions &options) {
  static const DeviceNames device;
  if (!kernel.isAtRoleLevel())
    return kernel.emitOpError() << "expected role regions, but the stages hold none: run "
                                   "task-lower-to-roles before emitting source";
  if (failed(checkNames(kernel, device)))
    return failure();

  Writer body;
  body.line("namespace megalith::" + kernel.getSymName() + " {");
  body.blank();
  if (failed(emitDeclarations(kernel, body)))
    return failure();
  for (Role role : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue}) {
    body.blank();
    if (failed(emitRole(kernel, role, body)))
      return failure();
  }
  body.blank();
  emitKernelFunction(kernel, body);
  body.blank();
  body.line("} // namespace megalith::" + kernel.getSymName());

  Writer head;
  emitBanner(kernel, options, head);
  const std::string text = body.text();
  const auto headers = device.headersFor(text);
  // On an H200 such a kernel of four rows had, in rms_norm_rows, the mask of a collective where an
  // address should be, unless no __syncwarp was left out (ptxas 13.0; the cause is not known).
  if (headers.count("codegen/device/quantize.cuh"))
    head.line("#define MEGALITH_KEEP_SYNCS");
  for (StringRef header : headers)
    head.line("#include \"" + header + "\"");
  head.blank();
  return head.text() + text;
}

} // namespace megalith
