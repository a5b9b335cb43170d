// What a compiled program depends on beside its key and its plugin.
#include <elf.h>
#include <link.h>

#include <fstream>
#include <string>

#include "cache/disk_cache.h"

namespace torch_tpu::cache {
namespace {

struct Search {
  ElfW(Addr) address;  // inside of the object that is looked for
  Hash128 hash;
};

void append_build_id(const char* notes, size_t size, Hash128& hash) {
  const auto aligned = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const size_t name = at + sizeof note;
    const size_t content = name + aligned(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && content + note.n_descsz <= size) {
      hash.append(std::string_view(notes + content, note.n_descsz));
    }
    at = content + aligned(note.n_descsz);
  }
}

int visit(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const ElfW(Addr) start = info->dlpi_addr + header.p_vaddr;
    inside |= header.p_type == PT_LOAD && search.address >= start && search.address < start + header.p_memsz;
  }
  if (!inside) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    append_build_id(reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz,
                    search.hash);
  }
  return 1;
}

/// The processor's model and features: XLA:CPU compiles for all that it finds.
void append_processor(Hash128& hash) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const bool tells =
        line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0 || line.rfind("model name", 0) == 0;
    if (tells) hash.append(std::string_view(line));
  }
}

}  // namespace

Hash128 machine_salt() {
  Search search{reinterpret_cast<ElfW(Addr)>(&machine_salt), {}};
  dl_iterate_phdr(visit, &search);
  append_processor(search.hash);
  return search.hash;
}

}  // namespace torch_tpu::cache
