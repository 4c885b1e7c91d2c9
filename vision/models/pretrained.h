#pragma once

#include <concepts>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/download/fetch_weights.h"

namespace tern {

/// The weights that a network begins with: random ones, those that its authors
/// publish, or those of a file.
///
///   {.pretrained = true}
///   {.pretrained = "resnet18.pth"}
class Pretrained {
 public:
  Pretrained() = default;
  // NOLINTBEGIN: implicit on purpose
  template <std::same_as<bool> Bool>
  Pretrained(Bool published) : is_published_(published) {}
  /// No file if the path is empty.
  template <std::convertible_to<std::filesystem::path> Path>
  Pretrained(Path file) : file_(std::move(file)) {}
  // NOLINTEND

  /// Whether there are any weights.
  explicit operator bool() const { return is_published_ || !file_.empty(); }
  bool is_published() const { return is_published_; }
  /// Empty if there is none.
  const std::filesystem::path& file() const { return file_; }

 private:
  bool is_published_ = false;
  std::filesystem::path file_;
};

/// Returns what `fetch_weights` fetches for a network: torchvision's default
/// weights, from ImageNet, or for vit_s_16 those of DeiT-S.
///
///   published_weights("resnet18").url;
///   // "https://download.pytorch.org/models/resnet18-f37072fd.pth"
///
/// \throws c10::ValueError naming the networks that there are weights for.
PublishedWeights published_weights(const std::string& network);

/// Names of the networks that there are weights for.
std::vector<std::string> networks_with_weights();

}  // namespace tern
