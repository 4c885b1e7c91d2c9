// Prints the folder of MNIST's sample or, if it is not on this machine and
// cannot be downloaded, of generated digits in the same layout. A program
// without support for generated digits, such as mnist, finds them if TERN_CACHE
// names the parent folder.
#include <cstdio>

#include <fmt/format.h>
#include <tern/data/support/error_text.h>

#include "synthetic_digits.h"

int main() try {
  fmt::print(
      "{}",
      tern::examples::mnist_or_digits(
          tern::urls::mnist_sample,
          {.sink = tern::terminal(stderr)})  // stdout gets only the path
          .string());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
