//===- cubin.cpp - Reading a cubin's sections -----------------------------===//
//
// Kernel K has its code in .text.K, static shared memory in .nv.shared.K and its attributes in
// .nv.info.K; .nv.info has attributes of all kernels by symbol. An attribute is {u8 format, u8
// kind, u16 value}; format 4 has a payload of `value` bytes behind it.
//
//===----------------------------------------------------------------------===//

#include "runtime/cubin.h"

#include "runtime/cubin_file.h"

#include <algorithm>
#include <cstring>

namespace megalith::runtime {

using namespace cubin;

namespace {

constexpr uint8_t kFormatPayload = 4;
constexpr uint8_t kMaxThreads = 0x05, kFrameSize = 0x11, kParameterBytes = 0x19, kRegisters = 0x2f,
                  kSpills = 0x55;
/// On sm_90 and up .nv.shared counts what the driver keeps for itself.
constexpr int64_t kReservedSmem = 1024;

/// Calls `each(kind, payload)` for the attributes of an info section.
template <typename Each> void readInfo(llvm::StringRef data, Each each) {
  while (data.size() >= 4) {
    const uint8_t format = data[0], kind = data[1];
    uint16_t value;
    std::memcpy(&value, data.data() + 2, 2);
    const llvm::StringRef payload =
        format == kFormatPayload ? data.substr(4, value) : data.substr(2, 2);
    each(kind, payload);
    data =
        data.drop_front(std::min<size_t>(data.size(), format == kFormatPayload ? 4u + value : 4u));
  }
}

uint32_t word(llvm::StringRef payload, size_t index) {
  uint32_t value = 0;
  if (payload.size() >= 4 * (index + 1))
    std::memcpy(&value, payload.data() + 4 * index, 4);
  return value;
}

/// The name of symbol `index`.
llvm::StringRef symbolName(const std::vector<Section> &sections, uint32_t index) {
  for (const Section &section : sections) {
    if (section.header.sh_type != SHT_SYMTAB || section.header.sh_link >= sections.size())
      continue;
    auto symbol = File(section.data).at<Elf64_Sym>(uint64_t(index) * sizeof(Elf64_Sym));
    if (symbol)
      return cString(sections[section.header.sh_link].data, symbol->st_name);
  }
  return "";
}

} // namespace

const CubinKernel *Cubin::kernel(llvm::StringRef name) const {
  auto it = std::find_if(kernels.begin(), kernels.end(),
                         [&](const CubinKernel &kernel) { return kernel.name == name; });
  return it == kernels.end() ? nullptr : &*it;
}

llvm::Expected<Cubin> parseCubin(llvm::StringRef bytes) {
  const File file(bytes);
  auto elf = readHeader(bytes);
  if (!elf)
    return elf.takeError();
  auto sections = readSections(file, *elf);
  if (!sections)
    return sections.takeError();

  Cubin cubin;
  cubin.sm = elf->e_flags >> 8 & 0xFFFF;
  for (const Section &section : *sections) {
    llvm::StringRef name = section.name;
    if (name.consume_front(".text."))
      cubin.kernels.push_back({.name = name.str(), .codeBytes = int64_t(section.header.sh_size)});
  }
  auto named = [&](llvm::StringRef name) -> CubinKernel * {
    return const_cast<CubinKernel *>(cubin.kernel(name));
  };
  for (const Section &section : *sections) {
    llvm::StringRef name = section.name;
    if (name == ".nv.info") {
      readInfo(section.data, [&](uint8_t kind, llvm::StringRef payload) {
        if (kind != kRegisters && kind != kFrameSize)
          return;
        if (CubinKernel *kernel = named(symbolName(*sections, word(payload, 0))))
          (kind == kRegisters ? kernel->registers : kernel->stackBytes) = word(payload, 1);
      });
    } else if (name.consume_front(".nv.info.")) {
      CubinKernel *kernel = named(name);
      if (!kernel)
        continue;
      readInfo(section.data, [&](uint8_t kind, llvm::StringRef payload) {
        if (kind == kMaxThreads)
          kernel->maxThreads = int64_t(word(payload, 0)) * word(payload, 1) * word(payload, 2);
        else if (kind == kParameterBytes && payload.size() >= 2)
          kernel->parameterBytes = uint8_t(payload[0]) | uint8_t(payload[1]) << 8;
        else if (kind == kSpills)
          kernel->spillInstructions += payload.size() / 8;
      });
    } else if (name.consume_front(".nv.shared.")) {
      if (CubinKernel *kernel = named(name))
        kernel->staticSmemBytes = std::max<int64_t>(0, int64_t(section.header.sh_size) -
                                                           (cubin.sm >= 90 ? kReservedSmem : 0));
    }
  }
  return cubin;
}

} // namespace megalith::runtime
