#pragma once

namespace tern {

/// Has the C library keep the memory that training on a CPU frees and wants
/// again at every step. Left to itself glibc gives large blocks back and takes
/// them anew, page by page, which costs a small net a third of its time and one
/// with large activations two thirds.
///
/// Once a process, by the first Learner on a CPU. From then on freed memory
/// stays with the process, also when blocks no longer fit together; the end of
/// a Learner gives back what nobody uses. Does nothing where the environment
/// sets a MALLOC_ variable or GLIBC_TUNABLES, or where the C library is
/// another.
void keep_freed_memory();

/// Gives the system what `keep_freed_memory` kept and nobody uses.
void give_back_freed_memory();

}  // namespace tern
