//===- ConfigReader.h - typed fields of a JSON config -----------------------===//
#ifndef MEGALITH_MODELS_CONFIGREADER_H
#define MEGALITH_MODELS_CONFIGREADER_H

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace megalith::models {

/// Reads the fields of one JSON object, so that a family's importer reads as a list of them. The
/// first error is kept, later ones are dropped, and after an error every read returns something
/// harmless (the smallest allowed value): call `takeError` once, at the end. A field is "absent" if
/// it is missing or null.
class ConfigReader {
public:
  ConfigReader(const llvm::json::Object &object, llvm::StringRef source,
               llvm::StringRef path = "$");

  /// A required integer.
  int64_t integer(llvm::StringRef key, int64_t min, int64_t max);
  /// The same with a value for when it is absent.
  int64_t integerOr(llvm::StringRef key, int64_t min, int64_t max, int64_t absent);
  /// A finite number above zero.
  double positiveOr(llvm::StringRef key, double absent);
  bool booleanOr(llvm::StringRef key, bool absent);
  /// A list of `length` strings, each one of `values`; the same of finite numbers of at least 0.
  /// Empty if the field is absent or wrong.
  std::vector<std::string> strings(llvm::StringRef key, size_t length,
                                   llvm::ArrayRef<llvm::StringRef> values, llvm::StringRef mend);
  std::vector<double> numbers(llvm::StringRef key, size_t length);
  /// A list of any number of strings; empty if the field is absent or wrong.
  std::vector<std::string> anyStrings(llvm::StringRef key);

  bool has(llvm::StringRef key) const;
  /// The object under `key`, or null; an error if it is there and something else.
  const llvm::json::Object *object(llvm::StringRef key);
  std::string path(llvm::StringRef key) const;
  llvm::StringRef getSource() const { return source; }

  /// If `key` is given, it is this string.
  void expectString(llvm::StringRef key, llvm::StringRef value, llvm::StringRef mend);
  /// If `key` is given, it is this list of one string.
  void expectOnlyString(llvm::StringRef key, llvm::StringRef value, llvm::StringRef mend);
  /// If `key` is given, it is false / this integer / an empty list.
  void expectFalse(llvm::StringRef key, llvm::StringRef feature);
  void expectInteger(llvm::StringRef key, int64_t value, llvm::StringRef feature);
  void expectEmptyList(llvm::StringRef key, llvm::StringRef feature);
  void expectAbsent(llvm::StringRef key, llvm::StringRef feature);

  /// Fields without bearing on what a decode step computes.
  void ignore(llvm::ArrayRef<llvm::StringRef> keys);
  /// Every field has been read or ignored, or its name begins with '_'.
  void expectNoOthers(llvm::StringRef modelType);

  /// Records "source: path.key: expected ... but got ...; mend".
  void fail(llvm::StringRef key, const llvm::Twine &expected, const llvm::Twine &got,
            const llvm::Twine &mend);
  /// Takes over what another reader (of a nested object) found.
  void adopt(llvm::Error error);
  bool failed() const { return !message.empty(); }
  llvm::Error takeError();

private:
  /// The value of `key`, null if absent; marks it as read.
  const llvm::json::Value *find(llvm::StringRef key);
  /// The list under `key` of this length, or null; an error if it is there and something else.
  const llvm::json::Array *list(llvm::StringRef key, size_t length);

  const llvm::json::Object &fields;
  std::string source;
  std::string where;
  std::string message;
  llvm::StringSet<> read;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_CONFIGREADER_H
