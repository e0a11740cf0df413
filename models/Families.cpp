//===- Families.cpp - the registry ------------------------------------------===//

#include "models/Family.h"

namespace megalith::models {

llvm::ArrayRef<const Family *> families() {
  static const Family *const all[] = {&kMixtral, &kMuseSpark, &kQwen3Moe};
  return all;
}

} // namespace megalith::models
