//===- cubin_file.h - Sections of a cubin ------------------------*- C++ -*-===//
//
// What reads of cubins share: bounds-checked bytes, section headers, names.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CUBIN_FILE_H
#define MEGALITH_RUNTIME_CUBIN_FILE_H

#include "runtime/error.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <optional>
#include <vector>

namespace megalith::runtime::cubin {

/// Bounds-checked reads from the file.
class File {
public:
  explicit File(llvm::StringRef bytes) : bytes(bytes) {}

  template <typename T> std::optional<T> at(uint64_t offset) const {
    if (offset > bytes.size() || sizeof(T) > bytes.size() - offset)
      return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
  }
  std::optional<llvm::StringRef> range(uint64_t offset, uint64_t size) const {
    if (offset > bytes.size() || size > bytes.size() - offset)
      return std::nullopt;
    return bytes.substr(offset, size);
  }

private:
  llvm::StringRef bytes;
};

struct Section {
  llvm::StringRef name;
  Elf64_Shdr header;
  llvm::StringRef data; ///< empty for NOBITS
};

inline llvm::StringRef cString(llvm::StringRef table, uint64_t offset) {
  return table.substr(std::min<uint64_t>(offset, table.size())).split('\0').first;
}

inline llvm::Expected<std::vector<Section>> readSections(const File &file, const Elf64_Ehdr &elf) {
  std::vector<Section> sections;
  for (unsigned i = 0; i < elf.e_shnum; ++i) {
    auto header = file.at<Elf64_Shdr>(elf.e_shoff + i * sizeof(Elf64_Shdr));
    if (!header)
      return problem("cubin: section header {0} lies outside the file; is it complete?", i);
    auto data = header->sh_type == SHT_NOBITS ? llvm::StringRef()
                                              : file.range(header->sh_offset, header->sh_size);
    if (!data)
      return problem("cubin: section {0} reaches past the end of the file; is it complete?", i);
    sections.push_back({"", *header, *data});
  }
  if (elf.e_shstrndx >= sections.size())
    return problem("cubin: no section names");
  for (Section &section : sections)
    section.name = cString(sections[elf.e_shstrndx].data, section.header.sh_name);
  return sections;
}

inline constexpr unsigned kMachineCuda = 190;

/// The header; the error says why it is none of a cubin.
inline llvm::Expected<Elf64_Ehdr> readHeader(llvm::StringRef bytes) {
  auto elf = File(bytes).at<Elf64_Ehdr>(0);
  if (!elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
      elf->e_ident[EI_CLASS] != ELFCLASS64)
    return problem("not a cubin: no 64-bit ELF header in its {0} bytes", bytes.size());
  if (elf->e_machine != kMachineCuda)
    return problem("not a cubin: an ELF file for machine {0}, expected {1} (CUDA)",
                   unsigned(elf->e_machine), kMachineCuda);
  return *elf;
}

} // namespace megalith::runtime::cubin

#endif // MEGALITH_RUNTIME_CUBIN_FILE_H
