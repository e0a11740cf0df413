//===- Why.cpp - why a pass decided as it did -------------------------------===//

#include "passes/why/Why.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace megalith {

static void write(Operation *op, const std::vector<Reason> &reasons) {
  Builder builder(op->getContext());
  SmallVector<Attribute> list;
  for (const Reason &reason : reasons)
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("because", builder.getStringAttr(reason.because)),
         builder.getNamedAttr("by", builder.getStringAttr(reason.by)),
         builder.getNamedAttr("chose", builder.getStringAttr(reason.chose)),
         builder.getNamedAttr("what", builder.getStringAttr(reason.what))}));
  op->setAttr(kWhy, builder.getArrayAttr(list));
}

void recordReason(Operation *op, const Reason &reason) {
  std::vector<Reason> reasons = reasonsOf(op);
  llvm::erase_if(reasons, [&](const Reason &other) { return other.what == reason.what; });
  reasons.push_back(reason);
  write(op, reasons);
}

std::vector<Reason> reasonsOf(Operation *op) {
  std::vector<Reason> reasons;
  // Whoever writes IR by hand may write anything here.
  if (auto list = op->getAttrOfType<ArrayAttr>(kWhy))
    for (Attribute entry : list) {
      auto texts = dyn_cast<DictionaryAttr>(entry);
      if (!texts)
        continue;
      auto text = [&](StringRef key) {
        auto value = texts.getAs<StringAttr>(key);
        return value ? value.str() : std::string();
      };
      reasons.push_back({text("by"), text("what"), text("chose"), text("because")});
    }
  return reasons;
}

void mergeReasons(Operation *to, Operation *from) {
  std::vector<Reason> reasons = reasonsOf(to);
  const size_t before = reasons.size();
  for (Reason &reason : reasonsOf(from))
    if (!llvm::is_contained(reasons, reason))
      reasons.push_back(std::move(reason));
  if (reasons.size() != before)
    write(to, reasons);
}

void dropReasons(Operation *op) {
  op->walk([](Operation *inner) { inner->removeAttr(kWhy); });
}

} // namespace megalith
