#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "tern/data/download/untar_data.h"

namespace tern::examples {

/// A gray image of 28x28 pixels, row by row, light on black as in MNIST.
using DigitImage = std::array<uint8_t, size_t{28} * 28>;

/// Draws a digit that looks handwritten: strokes in one of several shapes,
/// bent, slanted, scaled, shifted, thin or thick, with soft edges.
///
/// \param digit  0..9. \throws std::invalid_argument otherwise.
/// \return       The same image for the same arguments, on every platform up to
///               the rounding of its sine and cosine.
DigitImage draw_digit(int digit, uint64_t seed, int64_t index);

struct SyntheticDigitsOptions {
  /// Number of training and validation images, over all classes together.
  int64_t train = 0, valid = 0;
  uint64_t seed = 42;
};

/// Writes the digits 3 and 7 in the layout of fastai's MNIST_SAMPLE:
/// `folder/{train,valid}/{3,7}/<n>.png` and `folder/labels.csv`.
/// \param folder  Exists. \throws IoError.
void write_digit_pictures(
    const std::filesystem::path& folder,
    const SyntheticDigitsOptions& options = {.train = 12396, .valid = 2038});

/// Writes all ten digits as MNIST's four IDX files, uncompressed.
/// \param folder  Exists. \throws IoError.
void write_digit_idx(
    const std::filesystem::path& folder,
    const SyntheticDigitsOptions& options = {.train = 60000, .valid = 10000});

/// Returns the folder of a dataset, as `untar_data` does. If the dataset is not
/// on this machine and cannot be downloaded, returns a folder of generated
/// digits in the same layout and prints a warning. The generated digits are
/// stored in the cache's folder `generated`, and used until this folder is
/// removed or the real data is found on this machine.
///
///   auto path = mnist_or_digits(urls::mnist_sample);
///
/// \param dataset  urls::mnist_sample or urls::mnist.
std::filesystem::path mnist_or_digits(
    const DatasetUrl& dataset,
    const UntarOptions& options = {});

}  // namespace tern::examples
