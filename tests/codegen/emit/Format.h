//===- Format.h - clang-format's opinion of a source -------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_CODEGEN_EMIT_FORMAT_H
#define MEGALITH_TESTS_CODEGEN_EMIT_FORMAT_H

#include <optional>
#include <string>

namespace megalith::test {

/// What `clang-format --dry-run` says about `source` under the project's .clang-format: "" if it is
/// content, nullopt (and a warning) where it is not installed.
std::optional<std::string> formatFindings(const std::string &source);

} // namespace megalith::test

#endif // MEGALITH_TESTS_CODEGEN_EMIT_FORMAT_H
