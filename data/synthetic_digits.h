#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace tern {

/// A grey picture of 28x28, row by row, light on black as in MNIST.
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

/// What stands in for MNIST_SAMPLE and MNIST where they cannot be had.
void write_mnist_sample_stand_in(const std::filesystem::path& folder);
void write_mnist_stand_in(const std::filesystem::path& folder);

}  // namespace tern
