//===- code_lines.cpp - Which source lines a cubin's code is from ---------===//

#include "runtime/code_lines.h"

#include "runtime/cubin_file.h"

#include <algorithm>
#include <limits>
#include <string>

namespace megalith::runtime {

using namespace cubin;

namespace {

// DWARF 2, section 6.2.5, and NVRTC's own.
enum StandardOp : uint8_t {
  kExtended = 0,
  kCopy = 1,
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kSetColumn = 5,
  kConstAddPc = 8,
  kFixedAdvancePc = 9
};
enum ExtendedOp : uint8_t { kEndSequence = 1, kSetAddress = 2, kInlined = 0x90 };

/// Bytes one after the other; after the end everything is zero and `failed` is set.
class Reader {
public:
  explicit Reader(llvm::StringRef bytes) : bytes(bytes) {}

  bool failed = false;
  bool isAtEnd() const { return bytes.empty() || failed; }

  template <typename T> T next() {
    T value{};
    if (bytes.size() < sizeof(T)) {
      failed = true;
      return value;
    }
    std::memcpy(&value, bytes.data(), sizeof(T));
    bytes = bytes.drop_front(sizeof(T));
    return value;
  }
  uint64_t unsignedLeb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = next<uint8_t>();
      if (shift < 64)
        value |= uint64_t(byte & 0x7F) << shift;
      if (!(byte & 0x80))
        return value;
    }
  }
  int64_t signedLeb() {
    int64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = next<uint8_t>();
      if (shift < 64)
        value |= int64_t(byte & 0x7F) << shift;
      if (!(byte & 0x80)) {
        if (byte & 0x40 && shift + 7 < 64)
          value |= -(int64_t(1) << (shift + 7));
        return value;
      }
    }
  }
  llvm::StringRef text() {
    const auto [found, rest] = bytes.split('\0');
    if (found.size() == bytes.size())
      failed = true;
    bytes = rest;
    return found;
  }
  llvm::StringRef take(uint64_t count) {
    failed |= count > bytes.size();
    const llvm::StringRef taken = bytes.take_front(count);
    bytes = bytes.drop_front(std::min<uint64_t>(count, bytes.size()));
    return taken;
  }

private:
  llvm::StringRef bytes;
};

struct Row {
  uint64_t address = 0;
  bool isSource = false; ///< of the kernel's own file
  int64_t line = 0;
  uint64_t call = 0; ///< row, from 1, of the call that it was inlined by; 0: none
};

llvm::Error damaged() {
  return problem("cubin: its line table is damaged; compile the kernel again");
}

/// Rows of the table's only unit, the last one of the end.
llvm::Expected<std::vector<Row>> readRows(llvm::StringRef table, llvm::StringRef source) {
  Reader section(table);
  const auto length = section.next<uint32_t>();
  Reader unit(section.take(length));
  const auto version = unit.next<uint16_t>();
  if (section.failed || version < 2 || version > 4)
    return problem("cubin: expected a line table of DWARF version 2 to 4 but got {0}",
                   unsigned(version));
  Reader header(unit.take(unit.next<uint32_t>()));
  const auto step = header.next<uint8_t>();
  if (version >= 4)
    header.next<uint8_t>();
  header.next<uint8_t>(); // is_stmt
  const auto lineBase = header.next<int8_t>();
  const auto lineRange = header.next<uint8_t>();
  const auto opcodeBase = header.next<uint8_t>();
  std::vector<uint8_t> operands(std::max<size_t>(opcodeBase, 1));
  for (size_t i = 1; i < opcodeBase; ++i)
    operands[i] = header.next<uint8_t>();
  if (header.failed || !lineRange)
    return damaged();
  while (!header.failed && !header.text().empty())
    ;
  std::vector<bool> isSource = {false};
  for (llvm::StringRef name = header.text(); !header.failed && !name.empty();
       name = header.text()) {
    isSource.push_back(name == source || name.ends_with(("/" + source).str()));
    for (int i = 0; i < 3; ++i)
      header.unsignedLeb();
  }

  std::vector<Row> rows;
  uint64_t address = 0, file = 1, call = 0;
  int64_t line = 1;
  auto add = [&] {
    rows.push_back({address, file < isSource.size() && isSource[size_t(file)], line, call});
  };
  while (!unit.isAtEnd()) {
    const auto op = unit.next<uint8_t>();
    if (op >= opcodeBase) {
      const unsigned special = op - opcodeBase;
      address += uint64_t(special / lineRange) * step;
      line += lineBase + int(special % lineRange);
      add();
      continue;
    }
    switch (op) {
    case kExtended: {
      Reader extended(unit.take(unit.unsignedLeb()));
      switch (extended.next<uint8_t>()) {
      case kEndSequence:
        add();
        return unit.failed ? llvm::Expected<std::vector<Row>>(damaged()) : std::move(rows);
      case kSetAddress:
        address = extended.next<uint64_t>();
        break;
      case kInlined:
        call = extended.unsignedLeb();
        break;
      default:
        break;
      }
      break;
    }
    case kCopy:
      add();
      break;
    case kAdvancePc:
      address += unit.unsignedLeb() * step;
      break;
    case kAdvanceLine:
      line += unit.signedLeb();
      break;
    case kSetFile:
      file = unit.unsignedLeb();
      break;
    case kConstAddPc:
      address += uint64_t((255 - opcodeBase) / lineRange) * step;
      break;
    case kFixedAdvancePc:
      address += unit.next<uint16_t>();
      break;
    default:
      for (unsigned i = 0; i < operands[op]; ++i)
        unit.unsignedLeb();
    }
  }
  return damaged();
}

/// The innermost line of the kernel's source that the row comes from, or 0.
int64_t lineOf(const std::vector<Row> &rows, size_t index) {
  while (!rows[index].isSource) {
    // A call stands before what it inlines.
    const uint64_t call = rows[index].call;
    if (call == 0 || call - 1 >= index)
      return 0;
    index = size_t(call - 1);
  }
  return rows[index].line;
}

} // namespace

llvm::Expected<std::vector<CodeLine>> readCodeLines(llvm::StringRef bytes, llvm::StringRef source) {
  auto elf = readHeader(bytes);
  if (!elf)
    return elf.takeError();
  auto sections = readSections(File(bytes), *elf);
  if (!sections)
    return sections.takeError();
  const Section *code = nullptr, *table = nullptr;
  for (const Section &section : *sections) {
    if (section.name == ".debug_line")
      table = &section;
    if (!section.name.starts_with(".text."))
      continue;
    if (code)
      return problem("cubin: expected one kernel but got more");
    code = &section;
  }
  if (!code || !table)
    return problem("cubin: expected a kernel with line numbers but it has none; compile with "
                   "--generate-line-info");
  auto rows = readRows(table->data, source);
  if (!rows)
    return rows.takeError();
  const uint64_t size = code->header.sh_size;
  std::vector<CodeLine> lines;
  auto add = [&](uint64_t from, uint64_t to, int64_t line) {
    if (from >= to)
      return;
    if (!lines.empty() && lines.back().line == line)
      lines.back().bytes += int64_t(to - from);
    else
      lines.push_back({int64_t(from), int64_t(to - from), line});
  };
  // Before the first row and behind the last there is padding.
  uint64_t at = 0;
  for (size_t i = 0; i + 1 < rows->size(); ++i) {
    const uint64_t from = (*rows)[i].address, to = (*rows)[i + 1].address;
    if (from < at || from > to || to > size)
      return damaged();
    add(at, from, 0);
    add(from, to, lineOf(*rows, i));
    at = to;
  }
  add(at, size, 0);
  return lines;
}

} // namespace megalith::runtime
