//===- Configs.h - the project's configs, whole or changed ------------------===//
#ifndef MEGALITH_TESTS_MODELS_CONFIGS_H
#define MEGALITH_TESTS_MODELS_CONFIGS_H

#include "llvm/Support/JSON.h"

#include <string>

namespace megalith::models::test {

/// The text of models/configs/<name>.json; throws if there is none.
std::string configText(const std::string &name);

/// A config's text with some fields set and one removed. `fields` is the inside of a JSON object:
/// `"a": 1, "b": null`.
std::string changed(const std::string &name, const std::string &fields,
                    const std::string &removed = "");

} // namespace megalith::models::test

#endif // MEGALITH_TESTS_MODELS_CONFIGS_H
