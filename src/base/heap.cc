#include "base/heap.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torch_tpu::heap {

void keep_freed([[maybe_unused]] int64_t bytes) {
#ifdef __GLIBC__
  if (bytes <= 0) return;
  const auto most = static_cast<int64_t>(std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min(bytes, most)));
  mallopt(M_MMAP_MAX, 0);   // blocks of their own would go back one by one
  mallopt(M_ARENA_MAX, 1);  // and so would the heaps of other arenas
#endif
}

void release_freed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace torch_tpu::heap
