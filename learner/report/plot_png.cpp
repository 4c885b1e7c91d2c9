// PNG by librsvg, from the plot as SVG: letters of any language, in the fonts
// of the machine.

#include <cmath>
#include <memory>

#include <c10/util/Exception.h>
#ifdef TERN_WITH_ARCHIVES
#include <librsvg/rsvg.h>
#endif

#include "tern/kernels/check.h"
#include "tern/learner/report/plot.h"

namespace tern {

namespace {

#ifdef TERN_WITH_ARCHIVES

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

std::vector<uint8_t>
render(const std::string& svg, int64_t width, int64_t height) {
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
  std::vector<uint8_t> png;
  const bool is_drawn =
      document &&
      rsvg_handle_render_document(
          document.get(),
          context.get(),
          &page,
          nullptr) &&
      cairo_surface_write_to_png_stream(
          surface.get(),
          [](void* file, const unsigned char* bytes, unsigned int count) {
            auto& all = *static_cast<std::vector<uint8_t>*>(file);
            all.insert(all.end(), bytes, bytes + count);
            return CAIRO_STATUS_SUCCESS;
          },
          &png) == CAIRO_STATUS_SUCCESS;
  TORCH_CHECK(
      is_drawn,
      fmt::format(
          "[to_png] librsvg cannot draw {} x {} pixels; expected a plot that "
          "fits into memory. Write it as .svg.",
          width,
          height));
  return png;
}

#else

std::vector<uint8_t> render(const std::string&, int64_t, int64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "[to_png] this Tern was built without librsvg; write the plot as .svg, "
      "or build with TERN_ARCHIVES=ON.");
}

#endif

}  // namespace

std::vector<uint8_t> to_png(const Plot& plot, double scale) {
  TERN_CHECK_VALUE(
      scale >= 0.25 && scale <= 8,
      "[to_png] scale is {}; expected 0.25 to 8.",
      scale);
  return render(
      to_svg(plot),
      std::lround(plot.width * scale),
      std::lround(plot.height * scale));
}

}  // namespace tern
