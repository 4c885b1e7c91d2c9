#include "tern/kernels/boxes/box_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "tern/kernels/boxes/nms_math.h"
#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

const double kMostGrowth = std::log(1000.0 / 16);

void check_boxes(const char* where, const char* name, const at::Tensor& boxes) {
  TERN_CHECK_VALUE(
      boxes.defined() && boxes.dim() > 0 && boxes.size(-1) == 4 &&
          element_type(boxes.scalar_type()),
      "[{}] {} is {}; expected [..., 4] of kFloat, kDouble, kHalf or "
      "kBFloat16: x1, y1, x2, y2 of each box. Convert integers with "
      ".to(torch::kFloat).",
      where,
      name,
      describe(boxes));
}

bool broadcasts(at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t x = a[a.size() - i], y = b[b.size() - i];
    if (x != y && x != 1 && y != 1) return false;
  }
  return true;
}

// \param last  Number of trailing dimensions that may differ.
void check_pair(
    const char* where,
    const char* name1,
    const at::Tensor& boxes1,
    const char* name2,
    const at::Tensor& boxes2,
    size_t last) {
  check_boxes(where, name1, boxes1);
  check_boxes(where, name2, boxes2);
  const auto fits = [&](const at::Tensor& boxes) {
    return boxes.dim() >= static_cast<int64_t>(last);
  };
  TERN_CHECK_VALUE(
      fits(boxes1) && fits(boxes2) &&
          broadcasts(
              boxes1.sizes().slice(0, boxes1.dim() - last),
              boxes2.sizes().slice(0, boxes2.dim() - last)) &&
          boxes1.device() == boxes2.device(),
      "[{}] {} is {} and {} is {}; expected {}, on the same device. Move or "
      "reshape one of them.",
      where,
      name1,
      describe(boxes1),
      name2,
      describe(boxes2),
      last == 2 ? "[..., N, 4] and [..., M, 4] with equal leading dimensions"
                : "the same number of boxes");
}

// Converts 16-bit numbers to float.
at::Tensor widened(const at::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type())
             ? tensor.to(torch::kFloat)
             : tensor;
}

// The columns of boxes [..., 4].
struct Columns {
  at::Tensor x1, y1, x2, y2;

  explicit Columns(const at::Tensor& given) {
    const at::Tensor boxes = widened(given);
    x1 = boxes.select(-1, 0);
    y1 = boxes.select(-1, 1);
    x2 = boxes.select(-1, 2);
    y2 = boxes.select(-1, 3);
  }

  // Inserts a dimension of size 1, so that the columns broadcast.
  void unsqueeze(int64_t dim) {
    for (at::Tensor* column : {&x1, &y1, &x2, &y2}) {
      *column = column->unsqueeze(dim);
    }
  }

  at::Tensor area() const { return (x2 - x1) * (y2 - y1); }
};

struct Overlap {
  at::Tensor both, either;
};

Overlap overlap(const Columns& a, const Columns& b) {
  const at::Tensor width =
      (torch::minimum(a.x2, b.x2) - torch::maximum(a.x1, b.x1)).clamp_min(0);
  const at::Tensor height =
      (torch::minimum(a.y2, b.y2) - torch::maximum(a.y1, b.y1)).clamp_min(0);
  const at::Tensor both = width * height;
  return {both, a.area() + b.area() - both};
}

// Returns columns [..., N, 1] and [..., 1, M].
std::pair<Columns, Columns> each_with_each(
    const char* where,
    const at::Tensor& boxes1,
    const at::Tensor& boxes2) {
  check_pair(where, "boxes1", boxes1, "boxes2", boxes2, 2);
  std::pair<Columns, Columns> columns{Columns(boxes1), Columns(boxes2)};
  columns.first.unsqueeze(-1);
  columns.second.unsqueeze(-2);
  return columns;
}

}  // namespace

torch::Tensor box_area(const torch::Tensor& boxes) {
  check_boxes("box_area", "boxes", boxes);
  return Columns(boxes).area();
}

torch::Tensor box_iou(
    const torch::Tensor& boxes1,
    const torch::Tensor& boxes2) {
  const auto [a, b] = each_with_each("box_iou", boxes1, boxes2);
  const auto [both, either] = overlap(a, b);
  return both / either;
}

torch::Tensor generalized_box_iou(
    const torch::Tensor& boxes1,
    const torch::Tensor& boxes2) {
  const auto [a, b] = each_with_each("generalized_box_iou", boxes1, boxes2);
  const auto [both, either] = overlap(a, b);
  const at::Tensor around =
      (torch::maximum(a.x2, b.x2) - torch::minimum(a.x1, b.x1)).clamp_min(0) *
      (torch::maximum(a.y2, b.y2) - torch::minimum(a.y1, b.y1)).clamp_min(0);
  return both / either - (around - either) / around;
}

torch::Tensor generalized_box_iou_loss(
    const torch::Tensor& boxes1,
    const torch::Tensor& boxes2,
    double eps) {
  check_pair("generalized_box_iou_loss", "boxes1", boxes1, "boxes2", boxes2, 1);
  const Columns a(boxes1), b(boxes2);
  const at::Tensor width =
      torch::minimum(a.x2, b.x2) - torch::maximum(a.x1, b.x1);
  const at::Tensor height =
      torch::minimum(a.y2, b.y2) - torch::maximum(a.y1, b.y1);
  // No gradient for boxes that only touch.
  const at::Tensor both =
      (width * height).where((width > 0).logical_and(height > 0), 0);
  const at::Tensor either = a.area() + b.area() - both;
  const at::Tensor around =
      (torch::maximum(a.x2, b.x2) - torch::minimum(a.x1, b.x1)) *
      (torch::maximum(a.y2, b.y2) - torch::minimum(a.y1, b.y1));
  return 1 - (both / (either + eps) - (around - either) / (around + eps));
}

torch::Tensor
clip_boxes_to_image(const torch::Tensor& boxes, int64_t height, int64_t width) {
  check_boxes("clip_boxes_to_image", "boxes", boxes);
  TERN_CHECK_VALUE(
      height >= 0 && width >= 0,
      "[clip_boxes_to_image] the image is {} high and {} wide; expected "
      "numbers >= 0.",
      height,
      width);
  return torch::stack(
      {boxes.select(-1, 0).clamp(0, width),
       boxes.select(-1, 1).clamp(0, height),
       boxes.select(-1, 2).clamp(0, width),
       boxes.select(-1, 3).clamp(0, height)},
      -1);
}

torch::Tensor clip_boxes_to_image(
    const torch::Tensor& boxes,
    const torch::Tensor& sizes) {
  check_boxes("clip_boxes_to_image", "boxes", boxes);
  TERN_CHECK_VALUE(
      boxes.dim() > 1 && sizes.defined() && sizes.dim() == 2 &&
          sizes.size(0) == boxes.size(0) && sizes.size(1) == 2 &&
          sizes.device() == boxes.device(),
      "[clip_boxes_to_image] boxes is {} and sizes is {}; expected [N, ..., 4] "
      "and [N, 2], height and width of each image, on one device.",
      describe(boxes),
      describe(sizes));
  std::vector<int64_t> shape(static_cast<size_t>(boxes.dim()), 1);
  shape.front() = boxes.size(0);
  shape.back() = 4;
  const at::Tensor most =
      sizes.to(boxes.scalar_type()).flip(1).repeat({1, 2}).reshape(shape);
  return torch::minimum(boxes.clamp_min(0), most);
}

torch::Tensor encode_boxes(
    const torch::Tensor& reference_boxes,
    const torch::Tensor& proposals,
    const BoxWeights& weights) {
  check_pair(
      "encode_boxes",
      "reference_boxes",
      reference_boxes,
      "proposals",
      proposals,
      1);
  const Columns to(reference_boxes), from(proposals);
  const at::Tensor from_width = from.x2 - from.x1;
  const at::Tensor from_height = from.y2 - from.y1;
  const at::Tensor width = to.x2 - to.x1, height = to.y2 - to.y1;
  const at::Tensor x = to.x1 + 0.5 * width - (from.x1 + 0.5 * from_width);
  const at::Tensor y = to.y1 + 0.5 * height - (from.y1 + 0.5 * from_height);
  return torch::stack(
      {weights[0] * x / from_width,
       weights[1] * y / from_height,
       weights[2] * (width / from_width).log(),
       weights[3] * (height / from_height).log()},
      -1);
}

torch::Tensor decode_boxes(
    const torch::Tensor& rel_codes,
    const torch::Tensor& boxes,
    const BoxWeights& weights) {
  check_pair("decode_boxes", "rel_codes", rel_codes, "boxes", boxes, 1);
  const at::Tensor codes = widened(rel_codes);
  const Columns from(boxes.to(codes.scalar_type()));
  const at::Tensor from_width = from.x2 - from.x1;
  const at::Tensor from_height = from.y2 - from.y1;
  const auto code = [&](int64_t i) {
    return codes.select(-1, i) / weights[static_cast<size_t>(i)];
  };
  const at::Tensor x = code(0) * from_width + (from.x1 + 0.5 * from_width);
  const at::Tensor y = code(1) * from_height + (from.y1 + 0.5 * from_height);
  const at::Tensor half_width =
      0.5 * (code(2).clamp_max(kMostGrowth).exp() * from_width);
  const at::Tensor half_height =
      0.5 * (code(3).clamp_max(kMostGrowth).exp() * from_height);
  return torch::stack(
      {x - half_width, y - half_height, x + half_width, y + half_height},
      -1);
}

namespace {

// As wide as the compared numbers, so that a loop over both is vectorized.
template <class T>
using Flag = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

// Boxes of one class as columns, by descending score.
template <class T>
struct NmsColumns {
  std::vector<T> x1, y1, x2, y2, area;
  std::vector<Flag<T>> is_gone;

  void resize(size_t size) {
    for (auto* column : {&x1, &y1, &x2, &y2, &area}) column->resize(size);
    is_gone.resize(size);
  }

  NmsBox<T> operator[](size_t i) const {
    return {x1[i], y1[i], x2[i], y2[i], area[i]};
  }
};

template <class T>
TERN_CPU_LOOP void suppress(
    const NmsColumns<T>* columns,
    NmsBox<T> kept,
    Flag<T>* __restrict is_gone,
    int64_t begin,
    int64_t end,
    T threshold) {
  const T* __restrict x1 = columns->x1.data();
  const T* __restrict y1 = columns->y1.data();
  const T* __restrict x2 = columns->x2.data();
  const T* __restrict y2 = columns->y2.data();
  const T* __restrict area = columns->area.data();
  for (int64_t i = begin; i < end; ++i) {
    const NmsBox<T> other{x1[i], y1[i], x2[i], y2[i], area[i]};
    is_gone[i] |= static_cast<Flag<T>>(suppresses(kept, other, threshold));
  }
}

// Processes the boxes order[begin] to order[end - 1], which have the same
// class.
template <class T>
void keep_class(
    const T* boxes,
    const int64_t* order,
    int64_t count,
    T threshold,
    NmsColumns<T>& columns,
    bool* keep) {
  columns.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const T* box = boxes + 4 * order[i];
    columns.x1[i] = box[0];
    columns.y1[i] = box[1];
    columns.x2[i] = box[2];
    columns.y2[i] = box[3];
    columns.area[i] = nms_area(box[0], box[1], box[2], box[3]);
    columns.is_gone[i] = 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (columns.is_gone[i] != 0) continue;
    keep[order[i]] = true;
    on_cpu_isa<suppress<T>>(
        &columns,
        columns[static_cast<size_t>(i)],
        columns.is_gone.data(),
        i + 1,
        count,
        threshold);
  }
}

template <class T>
void nms_cpu(const NmsArgs& args) {
  const int64_t count = args.count;
  parallel_for(0, args.images, 1, [&](int64_t first, int64_t last) {
    NmsColumns<T> columns;
    std::vector<int64_t> order(static_cast<size_t>(count));
    for (int64_t image = first; image < last; ++image) {
      const T* boxes = static_cast<const T*>(args.boxes) + 4 * image * count;
      const int64_t* classes = args.classes + image * count;
      bool* keep = args.keep + image * count;
      std::fill_n(keep, count, false);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, {}, [&](int64_t i) {
        return classes[i];
      });
      for (int64_t begin = 0, end = 0; begin < count; begin = end) {
        const int64_t now = classes[order[begin]];
        while (end < count && classes[order[end]] == now) ++end;
        if (now < 0) continue;
        keep_class(
            boxes,
            order.data() + begin,
            end - begin,
            static_cast<T>(args.threshold),
            columns,
            keep);
      }
    }
  });
}

// Returns the largest value of the boxes' dtype that is not above the
// threshold. An IoU of that dtype exceeds either both or neither.
double threshold_of(double threshold, bool is_double) {
  if (is_double) return threshold;
  const auto near = static_cast<float>(threshold);
  return near > threshold
             ? std::nextafter(near, -std::numeric_limits<float>::infinity())
             : near;
}

void check_threshold(const char* where, double iou_threshold) {
  TERN_CHECK_VALUE(
      iou_threshold >= 0 && iou_threshold <= 1,
      "[{}] iou_threshold is {}; expected a number from 0 to 1.",
      where,
      iou_threshold);
}

bool has_shape_of_boxes(
    const at::Tensor& tensor,
    at::IntArrayRef sizes,
    const at::Tensor& like) {
  return tensor.defined() && tensor.sizes() == sizes &&
         tensor.device() == like.device();
}

// \param boxes    [N, K, 4], floating-point.
// \param classes  [N, K] kLong.
at::Tensor keep_mask(
    const char* where,
    const at::Tensor& boxes,
    const at::Tensor& classes,
    double iou_threshold) {
  check_threshold(where, iou_threshold);
  check_device(where, boxes.device());
  const at::NoGradGuard no_grad;
  const at::Tensor wide = widened(boxes).contiguous();
  const at::Tensor classes_in_order = classes.contiguous();
  at::Tensor keep = torch::empty(
      classes.sizes(),
      torch::dtype(torch::kBool).device(boxes.device()));
  if (keep.numel() == 0) return keep;
  NmsArgs args;
  args.boxes = wide.const_data_ptr();
  args.is_double = wide.scalar_type() == torch::kDouble;
  args.classes = classes_in_order.const_data_ptr<int64_t>();
  args.images = wide.size(0);
  args.count = wide.size(1);
  args.threshold = threshold_of(iou_threshold, args.is_double);
  args.keep = keep.mutable_data_ptr<bool>();
  dispatch_device(
      boxes.device(),
      [&] { args.is_double ? nms_cpu<double>(args) : nms_cpu<float>(args); },
      [&](auto stream) {
        const int64_t words = (args.count + 63) / 64;
        const auto room = [&](at::IntArrayRef sizes) {
          return torch::empty(sizes, classes_in_order.options());
        };
        const at::Tensor suppressed = room({args.images, args.count, words});
        const at::Tensor gone = room({args.images, words});
        args.suppressed = static_cast<uint64_t*>(suppressed.mutable_data_ptr());
        args.gone = static_cast<uint64_t*>(gone.mutable_data_ptr());
        return nms_cuda(args, stream);
      });
  return keep;
}

// \param classes  [K] kLong, or undefined: all boxes have the same class.
at::Tensor kept_indices(
    const char* where,
    const at::Tensor& boxes,
    const at::Tensor& scores,
    const at::Tensor& classes,
    double iou_threshold) {
  check_boxes(where, "boxes", boxes);
  TERN_CHECK_VALUE(
      boxes.dim() == 2 && has_shape_of_boxes(scores, {boxes.size(0)}, boxes) &&
          scores.is_floating_point(),
      "[{}] boxes is {} and scores is {}; expected [K, 4] and [K], "
      "floating-point, on one device.",
      where,
      describe(boxes),
      describe(scores));
  const at::NoGradGuard no_grad;
  const at::Tensor order =
      std::get<1>(scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true));
  const at::Tensor keep = keep_mask(
      where,
      boxes.index_select(0, order).unsqueeze(0),
      classes.defined() ? classes.index_select(0, order).unsqueeze(0)
                        : torch::zeros_like(order).unsqueeze(0),
      iou_threshold);
  return order.masked_select(keep.squeeze(0));
}

}  // namespace

torch::Tensor nms(
    const torch::Tensor& boxes,
    const torch::Tensor& scores,
    double iou_threshold) {
  return kept_indices("nms", boxes, scores, {}, iou_threshold);
}

torch::Tensor batched_nms(
    const torch::Tensor& boxes,
    const torch::Tensor& scores,
    const torch::Tensor& classes,
    double iou_threshold) {
  check_boxes("batched_nms", "boxes", boxes);
  TERN_CHECK_VALUE(
      has_shape_of_boxes(classes, {boxes.size(0)}, boxes) &&
          at::isIntegralType(classes.scalar_type(), /*includeBool=*/false),
      "[batched_nms] boxes is {} and classes is {}; expected [K, 4] and [K] of "
      "an integer dtype, on one device.",
      describe(boxes),
      describe(classes));
  // Here negative classes are normal classes.
  const at::Tensor numbers = classes.to(torch::kLong);
  const at::Tensor from_zero =
      numbers.numel() > 0 ? numbers - numbers.min() : numbers;
  return kept_indices("batched_nms", boxes, scores, from_zero, iou_threshold);
}

torch::Tensor nms_mask(
    const torch::Tensor& boxes,
    const torch::Tensor& classes,
    double iou_threshold) {
  check_boxes("nms_mask", "boxes", boxes);
  TERN_CHECK_VALUE(
      boxes.dim() == 3 &&
          has_shape_of_boxes(classes, boxes.sizes().slice(0, 2), boxes) &&
          classes.scalar_type() == torch::kLong,
      "[nms_mask] boxes is {} and classes is {}; expected [N, K, 4] and [N, K] "
      "kLong, on one device.",
      describe(boxes),
      describe(classes));
  return keep_mask("nms_mask", boxes, classes, iou_threshold);
}

}  // namespace tern
