//===- Configs.cpp - the project's configs, whole or changed ----------------===//

#include "tests/models/Configs.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <stdexcept>

using namespace llvm;

namespace megalith::models::test {

std::string configText(const std::string &name) {
  // Tests run in the workspace's runfiles.
  std::string path = "models/configs/" + name + ".json";
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(path);
  if (!file)
    throw std::runtime_error(path + ": " + file.getError().message());
  return (*file)->getBuffer().str();
}

static json::Object parseObject(StringRef text) {
  Expected<json::Value> value = json::parse(text);
  if (!value)
    throw std::runtime_error(text.str() + ": " + toString(value.takeError()));
  return *value->getAsObject();
}

std::string changed(const std::string &name, const std::string &fields,
                    const std::string &removed) {
  json::Object config = parseObject(configText(name));
  json::Object changes = parseObject("{" + fields + "}");
  for (auto &[key, value] : changes)
    config[key] = value;
  if (!removed.empty() && !config.erase(removed))
    throw std::runtime_error(name + " has no field " + removed);
  return formatv("{0}", json::Value(std::move(config)));
}

} // namespace megalith::models::test
