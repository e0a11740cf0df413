//===- Calibrate.cpp - megalith calibrate -----------------------------------===//

#include "tools/calibrate/CommandLine.h"
#include "tools/megalith/Commands.h"

namespace megalith::cli {

const Command kCalibrate = {calibrate::kSyntax, calibrate::run};

} // namespace megalith::cli
