#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "tern/data/download/untar_data.h"

namespace tern::examples {

/// A gray picture of 28x28, row by row, light on black as in MNIST.
using DigitImage = std::array<uint8_t, size_t{28} * 28>;

/// Draws a digit the way somebody might write it: strokes in one of several
/// shapes, bent, slanted, scaled, shifted, thin or thick, with soft edges.
///
/// \param digit  0..9. \throws std::invalid_argument otherwise.
/// \return       The same picture for the same arguments, on every platform
///               up to the rounding of its sine and cosine.
DigitImage draw_digit(int digit, uint64_t seed, int64_t index);

struct SyntheticDigitsOptions {
  /// Pictures to learn from and to check with, over all classes together.
  int64_t train = 0, valid = 0;
  uint64_t seed = 42;
};

/// Writes the digits 3 and 7 in the layout of fastai's MNIST_SAMPLE:
/// `folder/{train,valid}/{3,7}/<n>.png` and `folder/labels.csv`.
/// \param folder  Exists. \throws IoError.
void write_digit_pictures(
    const std::filesystem::path& folder,
    const SyntheticDigitsOptions& options = {.train = 12396, .valid = 2038});

/// Writes all ten digits as MNIST's four IDX files, not gzipped.
/// \param folder  Exists. \throws IoError.
void write_digit_idx(
    const std::filesystem::path& folder,
    const SyntheticDigitsOptions& options = {.train = 60000, .valid = 10000});

/// `untar_data`; or, where there are neither data nor a network, generated
/// digits in the same form, with a message that says so. These are kept in
/// `generated` in the cache, and used until that is removed or the real data is
/// found on this machine.
///
///   auto path = mnist_or_digits(urls::mnist_sample);
///
/// \param dataset  urls::mnist_sample or urls::mnist.
std::filesystem::path mnist_or_digits(
    const DatasetUrl& dataset,
    const UntarOptions& options = {});

}  // namespace tern::examples
