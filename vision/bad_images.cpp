#include "tern/vision/bad_images.h"

#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/data/message.h"

namespace tern {

void BadImageList::add(
    int64_t index,
    BadImage image,
    int64_t total,
    double max_fraction) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = images_.emplace(index, std::move(image));
  const auto count = static_cast<double>(images_.size());
  if (count > max_fraction * static_cast<double>(total)) {
    std::string list;
    constexpr size_t kNamed = 10;
    size_t named = 0;
    for (const auto& [unused, bad] : images_) {
      if (named++ < kNamed) {
        list += "\n  " + bad.reason;
      }
    }
    throw DataError(
        at->second.path,
        fmt::format(
            "is one of {} bad images among {}, more than the share of {} that "
            "may be skipped. Repair or remove them (verify_images lists all), "
            "or raise max_fraction.{}{}",
            images_.size(),
            total,
            max_fraction,
            list,
            named > kNamed ? "\n  ..." : ""));
  }
  if (is_new) {
    message(at->second.reason + " Skipped.");
  }
}

std::vector<BadImage> BadImageList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<BadImage> images;
  for (const auto& [unused, image] : images_) {
    images.push_back(image);
  }
  return images;
}

}  // namespace tern
