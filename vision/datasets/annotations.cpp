#include "tern/vision/datasets/annotations.h"

#include <memory>
#include <unordered_map>

namespace tern {

std::vector<std::string> BoxAnnotations::paths() const {
  std::vector<std::string> paths;
  paths.reserve(images.size());
  for (const AnnotatedImage& image : images) paths.push_back(image.path);
  return paths;
}

ImageItems BoxAnnotations::items() const {
  ImageItems items;
  items.reserve(images.size());
  for (const AnnotatedImage& image : images) items.push_back({image.path});
  return items;
}

BoxLabeller BoxAnnotations::labeller() const {
  auto by_path =
      std::make_shared<std::unordered_map<std::string, ImageBoxes>>();
  for (const AnnotatedImage& image : images) {
    by_path->emplace(image.path, image.objects);
  }
  return [by_path](const ImageItem& item) {
    const auto at = by_path->find(item.path);
    if (at == by_path->end()) {
      item.fail(
          "is not one of the {} annotated images; expected an annotated image. "
          "Use items() of the same annotations.",
          by_path->size());
    }
    return at->second;
  };
}

}  // namespace tern
