#pragma once

namespace tern {

/// Has the C library keep the memory that training on a CPU frees and wants
/// again at every step; left to itself glibc gives it back and takes it anew,
/// page by page, which costs a small net a third of its time.
///
/// Once a process, by the first Learner on a CPU: blocks up to 32 MB come from
/// the heap, of which up to 1 GB stays when freed. Does nothing where the
/// environment sets MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or
/// GLIBC_TUNABLES, or where the C library is another.
void keep_freed_memory();

}  // namespace tern
