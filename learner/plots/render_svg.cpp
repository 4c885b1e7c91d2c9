// Uses librsvg, which renders text in any language.

#include <cstring>
#include <memory>

#include <c10/util/Exception.h>

#include "tern/learner/plots/svg.h"
#ifdef TERN_WITH_ARCHIVES
#include <librsvg/rsvg.h>
#endif

#include "tern/kernels/check.h"

namespace tern {

#ifdef TERN_WITH_ARCHIVES

namespace {

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

}  // namespace

std::vector<uint8_t>
render_svg(const std::string& svg, int64_t width, int64_t height) {
  const std::unique_ptr<RsvgHandle, Release<g_object_unref>> document(
      rsvg_handle_new_from_data(
          reinterpret_cast<const guint8*>(svg.data()),
          svg.size(),
          nullptr));
  const std::unique_ptr<cairo_surface_t, Release<cairo_surface_destroy>>
      surface(cairo_image_surface_create(
          CAIRO_FORMAT_RGB24,
          static_cast<int>(width),
          static_cast<int>(height)));
  const std::unique_ptr<cairo_t, Release<cairo_destroy>> context(
      cairo_create(surface.get()));
  const RsvgRectangle page{
      0,
      0,
      static_cast<double>(width),
      static_cast<double>(height)};
  const bool is_drawn = document && rsvg_handle_render_document(
                                        document.get(),
                                        context.get(),
                                        &page,
                                        nullptr);
  TORCH_CHECK(
      is_drawn,
      fmt::format(
          "[render_svg] librsvg cannot draw {} x {} pixels; expected a smaller "
          "figure, which fits into memory. Write it as .svg.",
          width,
          height));
  cairo_surface_flush(surface.get());
  // A pixel is a 32-bit number 0x00RRGGBB.
  const unsigned char* row = cairo_image_surface_get_data(surface.get());
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(height * width * 3));
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      uint32_t color = 0;
      std::memcpy(&color, row + 4 * x, sizeof color);
      for (const int shift : {16, 8, 0}) {
        pixels.push_back(static_cast<uint8_t>(color >> shift));
      }
    }
    row += cairo_image_surface_get_stride(surface.get());
  }
  return pixels;
}

#else

std::vector<uint8_t> render_svg(const std::string&, int64_t, int64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "[render_svg] this Tern was built without librsvg; write the figure as "
      ".svg, or build with TERN_ARCHIVES=ON.");
}

#endif

}  // namespace tern
