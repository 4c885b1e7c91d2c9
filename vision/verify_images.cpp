#include "tern/vision/verify_images.h"

#include <cerrno>
#include <unistd.h>

#include "tern/data/formats/error.h"
#include "tern/vision/for_each_image.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_folder.h"

namespace tern {

ImageReport verify_images(
    const std::vector<std::string>& paths,
    const VerifyImagesOptions& options) {
  std::vector<std::string> reasons(paths.size());
  for_each_image(
      static_cast<int64_t>(paths.size()),
      [&](int64_t index) {
        static thread_local ScratchBuffer file, pixels;
        const std::string& path = paths[static_cast<size_t>(index)];
        try {
          const EncodedImage image(
              read_image_file(path, file),
              path,
              options.decode);
          const ImageSize size = image.size();
          image.decode(
              size,
              pixels.get(static_cast<size_t>(
                  size.height * size.width * options.decode.channels)));
        } catch (const DataError& error) {
          reasons[static_cast<size_t>(index)] = error.what();
        }
      },
      "verify",
      options.sink,
      options.workers);
  ImageReport report{.checked = static_cast<int64_t>(paths.size())};
  for (size_t i = 0; i < paths.size(); ++i) {
    if (reasons[i].empty()) {
      continue;
    }
    report.bad.push_back({paths[i], reasons[i]});
    if (options.remove) {
      if (::unlink(paths[i].c_str()) != 0 && errno != ENOENT) {
        throw IoError(paths[i], "remove the bad image", errno);
      }
      ++report.removed;
    }
  }
  return report;
}

ImageReport verify_images(
    const std::filesystem::path& folder,
    const VerifyImagesOptions& options) {
  return verify_images(find_image_files(folder), options);
}

}  // namespace tern
