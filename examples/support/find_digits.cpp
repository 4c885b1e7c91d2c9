// Prints the folder of MNIST's sample, or, where neither data nor a network
// are, of generated digits in its form. A program that knows nothing of these,
// such as mnist, finds them when TERN_CACHE is the folder above.
#include <cstdio>

#include <fmt/format.h>
#include <tern/data/support/error_text.h>

#include "synthetic_digits.h"

int main() try {
  fmt::print(
      "{}",
      tern::examples::mnist_or_digits(
          tern::urls::mnist_sample,
          {.sink = tern::terminal(stderr)})  // stdout is the answer alone
          .string());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
