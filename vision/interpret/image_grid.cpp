#include "tern/vision/interpret/image_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/samples/png.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// Kelly's colors of maximum contrast, without colors close to white and black.
constexpr std::array<std::array<uint8_t, 3>, 16> kColors = {
    {{0, 103, 165},
     {243, 195, 0},
     {190, 0, 50},
     {135, 86, 146},
     {243, 132, 0},
     {0, 136, 86},
     {161, 202, 241},
     {194, 178, 128},
     {230, 143, 172},
     {101, 69, 34},
     {141, 182, 0},
     {96, 78, 151},
     {246, 166, 0},
     {179, 68, 108},
     {220, 211, 0},
     {226, 88, 34}}};

constexpr int64_t kMargin = 14, kGap = 14, kLine = 16, kTitleLine = 20;
constexpr int64_t kSwatch = 14, kLegendLine = 24;
constexpr size_t kMaxLines = 3;
constexpr double kTagRoom = 13;  // height of a name above its box

int64_t columns_of(const ImageGridOptions& options, int64_t count) {
  const int64_t columns =
      options.columns > 0 ? options.columns
                          : static_cast<int64_t>(std::ceil(std::sqrt(count)));
  return std::min(columns, count);
}

/// Returns height and width of an image that is scaled to fit into the tile.
std::array<int64_t, 2> fitted(const torch::Tensor& image, int64_t tile) {
  const int64_t longest = std::max(image.size(0), image.size(1));
  const auto side = [&](int64_t pixels) {
    return std::max<int64_t>(1, (pixels * tile + longest / 2) / longest);
  };
  return {side(image.size(0)), side(image.size(1))};
}

/// Wraps the lines of a caption to at most `width` pixels.
std::vector<CaptionLine> wrapped(
    const std::vector<CaptionLine>& caption,
    int64_t width) {
  std::vector<CaptionLine> lines;
  for (const CaptionLine& line : caption) {
    for (std::string& part : wrap_text(
             line.text,
             static_cast<double>(width),
             kTextSize,
             kMaxLines)) {
      lines.push_back({std::move(part), line.color});
    }
  }
  return lines;
}

/// Layout of a legend: rows of `columns` names, each `width` pixels wide.
struct LegendLayout {
  LegendLayout(const std::vector<CaptionLine>& legend, int64_t page_width) {
    for (const CaptionLine& line : legend) {
      const double name = text_width(line.text, kTextSize);
      width = std::max<int64_t>(width, std::llround(name) + 3 * kSwatch);
    }
    width = std::min(width, page_width);
    columns = std::max<int64_t>(1, page_width / width);
    rows = (std::ssize(legend) + columns - 1) / columns;
  }

  int64_t width = 3 * kSwatch, columns = 1, rows = 0;
};

/// Layout of the rows. An image is at the bottom of its tile, above its
/// caption.
struct TileRows {
  TileRows(
      const Tensors& images,
      const std::vector<std::vector<CaptionLine>>& captions,
      int64_t columns,
      int64_t tile,
      int64_t top)
      : bottom(top) {
    const int64_t count = std::ssize(images);
    for (int64_t i = 0; i < count; i += columns) {
      int64_t height = 0, lines = 0;
      for (int64_t j = i; j < std::min(i + columns, count); ++j) {
        height = std::max(height, fitted(images[j], tile)[0]);
        lines = std::max(lines, std::ssize(captions[j]));
      }
      caption_tops.push_back(bottom + height);
      bottom += height + lines * kLine + kGap;
    }
  }

  std::vector<int64_t> caption_tops;  // of each row
  int64_t bottom;  // bottom of the last row, where the legend begins
};

void draw_title(Page& page, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto line = static_cast<double>(i);
    page.text(
        {lines[i], kMargin, kMargin + 12 + line * kTitleLine, kTitleSize});
  }
}

/// Draws the boxes and points of an image.
/// \param x, y   Upper left corner of its image.
/// \param scale  Drawn size relative to the image's size.
void draw_marks(
    Page& page,
    const Picture& picture,
    double x,
    double y,
    double scale) {
  for (const MarkedBox& box : picture.boxes) {
    page.frame(
        x + scale * box.x1,
        y + scale * box.y1,
        scale * (box.x2 - box.x1),
        scale * (box.y2 - box.y1),
        box.color);
  }
  // Names are above all frames.
  for (const MarkedBox& box : picture.boxes) {
    if (box.name.empty()) continue;
    // At the upper edge of the image, the name is inside the box, so that it
    // does not cover the area above the image.
    const double bottom = std::max(y + scale * box.y1, y + kTagRoom);
    page.tag(x + scale * box.x1, bottom, box.name, box.color);
  }
  for (const MarkedPoint& point : picture.points) {
    page.dot(x + scale * point.x, y + scale * point.y, point.color);
  }
}

/// Draws an image above its caption.
/// \param x  Left edge of the tile.
void draw_tile(
    Page& page,
    const Picture& picture,
    const torch::Tensor& image,
    const std::vector<CaptionLine>& caption,
    int64_t x,
    int64_t caption_top,
    int64_t tile) {
  const auto [height, width] = fitted(image, tile);
  page.image(
      image,
      x + (tile - width) / 2,
      caption_top - height,
      width,
      height);
  draw_marks(
      page,
      picture,
      static_cast<double>(x + (tile - width) / 2),
      static_cast<double>(caption_top - height),
      static_cast<double>(width) / static_cast<double>(image.size(1)));
  int64_t y = caption_top;
  for (const CaptionLine& line : caption) {
    y += kLine;
    page.text(
        {line.text,
         static_cast<double>(x) + static_cast<double>(tile) / 2,
         static_cast<double>(y) - 2,
         kTextSize,
         Anchor::middle},
        line.color);
  }
}

/// Draws each name next to a square in its color.
void draw_legend(
    Page& page,
    const std::vector<CaptionLine>& names,
    const LegendLayout& layout,
    int64_t top) {
  const auto name_width = static_cast<double>(layout.width - 2 * kSwatch);
  for (int64_t i = 0; i < std::ssize(names); ++i) {
    const int64_t x = kMargin + i % layout.columns * layout.width;
    const int64_t y = top + i / layout.columns * kLegendLine;
    page.box(x, y, kSwatch, kSwatch, names[i].color);
    page.text(
        {wrap_text(names[i].text, name_width, kTextSize, 1).front(),
         static_cast<double>(x + kSwatch + 6),
         static_cast<double>(y + kSwatch - 3),
         kTextSize});
  }
}

}  // namespace

torch::Tensor image_bytes(const torch::Tensor& image, const std::string& who) {
  const bool is_floating = image.defined() && image.is_floating_point();
  const bool is_byte = image.defined() && image.scalar_type() == torch::kByte;
  const int64_t channels = !image.defined() || image.dim() != 3
                               ? 1
                               : image.size(is_floating ? 0 : 2);
  TERN_CHECK_VALUE(
      (is_floating || is_byte) && (image.dim() == 2 || image.dim() == 3) &&
          (channels == 1 || channels == 3) && image.numel() > 0,
      "{} the image is {}; expected [H, W] or [1 or 3, H, W] "
      "floating in 0..1, or [H, W] or [H, W, 1 or 3] kByte.",
      who,
      shapes_of({image}));
  torch::Tensor bytes = image.detach();
  if (is_floating) {
    bytes = bytes.to(torch::kFloat).clamp(0, 1).mul(255).round();
    if (bytes.dim() == 3) bytes = bytes.permute({1, 2, 0});
  }
  return bytes.to(torch::kCPU, torch::kByte)
      .contiguous()
      .view({bytes.size(0), bytes.size(1), channels});
}

torch::Tensor image_grid(
    const std::vector<Picture>& pictures,
    const ImageGridOptions& options) {
  TERN_CHECK_VALUE(
      !pictures.empty() && options.tile >= 16,
      "[image_grid] got {} images in tiles of {} pixels; expected at least "
      "one image, and tiles of at least 16 pixels.",
      pictures.size(),
      options.tile);
  Tensors images;
  std::vector<std::vector<CaptionLine>> captions;
  for (const Picture& picture : pictures) {
    images.push_back(image_bytes(picture.image, "[image_grid]"));
    captions.push_back(wrapped(picture.caption, options.tile));
  }
  const int64_t columns = columns_of(options, std::ssize(pictures));
  const int64_t inner = columns * (options.tile + kGap) - kGap;
  std::vector<std::string> title;
  if (!options.title.empty()) {
    title = wrap_text(
        options.title,
        static_cast<double>(inner),
        kTitleSize,
        kMaxLines);
  }
  const TileRows rows(
      images,
      captions,
      columns,
      options.tile,
      /*top=*/kMargin + std::ssize(title) * kTitleLine);
  const LegendLayout legend(options.legend, inner);
  Page page(rows.bottom + legend.rows * kLegendLine, inner + 2 * kMargin);
  draw_title(page, title);
  for (int64_t i = 0; i < std::ssize(images); ++i) {
    const int64_t x = kMargin + i % columns * (options.tile + kGap);
    const int64_t caption_top = rows.caption_tops[i / columns];
    draw_tile(
        page,
        pictures[i],
        images[i],
        captions[i],
        x,
        caption_top,
        options.tile);
  }
  draw_legend(page, options.legend, legend, rows.bottom);
  return page.pixels();
}

Rgb class_color(int64_t index) {
  Rgb color = kColors[index % kColors.size()];
  // Beyond the table, colors repeat in darker shades.
  const int64_t darker = 1 + index / std::ssize(kColors);
  for (uint8_t& value : color) value = static_cast<uint8_t>(value / darker);
  return color;
}

torch::Tensor mask_colors(int64_t classes) {
  torch::Tensor colors = torch::empty({classes, 3}, torch::kByte);
  auto* out = colors.data_ptr<uint8_t>();
  for (int64_t i = 0; i < classes; ++i) {
    out = std::ranges::copy(class_color(i), out).out;
  }
  return colors;
}

torch::Tensor with_mask(
    const torch::Tensor& image,
    const torch::Tensor& mask,
    int64_t classes) {
  const int64_t height = image.size(0), width = image.size(1);
  torch::Tensor indices = mask.cpu().to(torch::kLong);
  if (indices.sizes() != image.sizes().slice(0, 2)) {
    indices = torch::upsample_nearest2d(
                  indices.to(torch::kFloat).view({1, 1, mask.size(0), -1}),
                  {height, width})[0][0]
                  .to(torch::kLong);
  }
  const torch::Tensor known = (indices >= 0).logical_and(indices < classes);
  const torch::Tensor colors =
      mask_colors(classes)
          .index_select(0, indices.clamp(0, classes - 1).flatten())
          .view({height, width, 3});
  const torch::Tensor rgb = image.expand({height, width, 3});
  const torch::Tensor blended =
      (rgb.to(torch::kInt) + colors.to(torch::kInt)).div(2, "trunc");
  return torch::where(known.unsqueeze(2), blended.to(torch::kByte), rgb);
}

std::vector<uint8_t> png_of(
    const torch::Tensor& image,
    const std::string& who) {
  const torch::Tensor bytes = image_bytes(image, who);
  const std::span<const uint8_t> pixels(
      bytes.const_data_ptr<uint8_t>(),
      static_cast<size_t>(bytes.numel()));
  return encode_png(pixels, bytes.size(1), bytes.size(0), bytes.size(2));
}

void save_image(const std::filesystem::path& file, const torch::Tensor& image) {
  TERN_CHECK_VALUE(
      file.extension() == ".png" || file.extension() == ".PNG",
      "[save_image] the file is {}; expected a name that ends in .png, the "
      "only format that is written.",
      file.string());
  write_file(file, png_of(image, "[save_image] " + file.string() + ":"));
}

}  // namespace tern
