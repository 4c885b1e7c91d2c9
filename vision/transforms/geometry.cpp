#include "tern/vision/transforms/geometry.h"

#include <algorithm>
#include <cmath>

#include <opencv2/core.hpp>

#include "tern/kernels/check.h"
#include "tern/vision/transforms/drawn.h"

namespace tern {

namespace {

using Points = std::array<std::array<double, 2>, 4>;

/// Upper left, lower left, upper right and lower right corner.
constexpr Points kCorners = {{{-1, -1}, {-1, 1}, {1, -1}, {1, 1}}};

/// Returns the largest centered part whose ratio of width to height is in
/// `ratio`.
ImageRegion middle_part(ImageSize image, Range ratio) {
  const auto height = static_cast<double>(image.height);
  const auto width = static_cast<double>(image.width);
  ImageSize size = image;
  if (width / height < ratio.low) {
    const int64_t wanted = std::llround(width / ratio.low);
    size.height = std::clamp<int64_t>(wanted, 1, image.height);
  } else if (width / height > ratio.high) {
    const int64_t wanted = std::llround(height * ratio.high);
    size.width = std::clamp<int64_t>(wanted, 1, image.width);
  }
  return {
      (image.height - size.height) / 2,
      (image.width - size.width) / 2,
      size.height,
      size.width};
}

/// Same as torchvision.transforms.RandomResizedCrop.get_params.
ImageRegion
random_part(ImageSize image, Range scale, Range ratio, SampleRng& rng) {
  const auto area = static_cast<double>(image.height * image.width);
  const float low = std::log(ratio.low), high = std::log(ratio.high);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * draw(scale, rng);
    const double shape = std::exp(rng.uniform(low, high));
    const ImageSize size = {
        std::llround(std::sqrt(wanted / shape)),
        std::llround(std::sqrt(wanted * shape))};
    if (size.height > 0 && size.width > 0 && size.height <= image.height &&
        size.width <= image.width) {
      // Drawn as a fraction, so that the same image in a different size is
      // cropped at the same position.
      const auto place = [&](int64_t room) {
        return static_cast<int64_t>(
            double{rng.uniform()} * static_cast<double>(room + 1));
      };
      const int64_t top = place(image.height - size.height);
      const int64_t left = place(image.width - size.width);
      return {top, left, size.height, size.width};
    }
  }
  return middle_part(image, ratio);
}

}  // namespace

TransformPtr flip_lr(float p) {
  return drawn("flip_lr", p, [](SamplePlan& plan, SampleRng&) {
    plan.view_about_center(Matrix3::scaling(-1, 1));
  });
}

TransformPtr dihedral(float p) {
  return drawn("dihedral", p, [](SamplePlan& plan, SampleRng& rng) {
    const uint64_t way = rng.below(8);
    Matrix3 matrix = Matrix3::scaling(way & 1 ? -1 : 1, way & 2 ? -1 : 1);
    if ((way & 4) != 0) matrix = matrix * Matrix3{{0, 1, 0, 1, 0, 0, 0, 0, 1}};
    view_in_units(plan, matrix);
  });
}

TransformPtr rotate(Range degrees, float p) {
  checked("rotate", degrees);
  return drawn("rotate", p, [degrees](SamplePlan& plan, SampleRng& rng) {
    constexpr double kPi = 3.14159265358979323846;
    // Rotating the view rotates its contents in the opposite direction.
    plan.view_about_center(Matrix3::rotation(-draw(degrees, rng) * kPi / 180));
  });
}

TransformPtr rand_zoom(Range scale, float p) {
  checked("rand_zoom", scale, 0);
  return drawn("rand_zoom", p, [scale](SamplePlan& plan, SampleRng& rng) {
    const double part = 1 / static_cast<double>(draw(scale, rng));
    const double row = rng.uniform(-1, 1), column = rng.uniform(-1, 1);
    view_in_units(
        plan,
        Matrix3::translation((1 - part) * column, (1 - part) * row) *
            Matrix3::scaling(part, part));
  });
}

TransformPtr zoom(Range scale, float p) {
  checked("zoom", scale, 0);
  return drawn("zoom", p, [scale](SamplePlan& plan, SampleRng& rng) {
    const double part = 1 / static_cast<double>(draw(scale, rng));
    plan.view_about_center(Matrix3::scaling(part, part));
  });
}

TransformPtr squish(Range scale, float p) {
  checked("squish", scale, 0);
  return drawn("squish", p, [scale](SamplePlan& plan, SampleRng& rng) {
    const double stretch = draw(scale, rng);
    // Shrinks the view in the direction that keeps it within the image.
    plan.view_about_center(
        stretch <= 1 ? Matrix3::scaling(stretch, 1)
                     : Matrix3::scaling(1, 1 / stretch));
  });
}

TransformPtr symmetric_warp(Range magnitude, float p) {
  checked("symmetric_warp", magnitude);
  return drawn(
      "symmetric_warp",
      p,
      [magnitude](SamplePlan& plan, SampleRng& rng) {
        double m[4];
        for (double& value : m) value = draw(magnitude, rng);
        const Points seen = {
            {{-1 - m[3], -1 - m[1]},
             {-1 - m[2], 1 + m[1]},
             {1 + m[3], -1 - m[0]},
             {1 + m[2], 1 + m[0]}}};
        view_in_units(plan, perspective_matrix(seen, kCorners));
      });
}

TransformPtr perspective(float magnitude, float p) {
  checked("perspective", {0, magnitude});
  return drawn("perspective", p, [magnitude](SamplePlan& plan, SampleRng& rng) {
    Points seen = kCorners;
    for (auto& point : seen) {
      for (double& coordinate : point) {
        coordinate += rng.uniform(-magnitude, magnitude);
      }
    }
    view_in_units(plan, perspective_matrix(seen, kCorners));
  });
}

TransformPtr jitter(Range magnitude, float p) {
  checked("jitter", magnitude);
  return drawn("jitter", p, [magnitude](SamplePlan& plan, SampleRng& rng) {
    const float size = draw(magnitude, rng);
    plan.jitter(size, rng());
  });
}

Matrix3 perspective_matrix(const Points& from, const Points& to) {
  // x' (g x + h y + 1) = a x + b y + c, and likewise for y': eight equations
  // for the eight unknowns.
  cv::Matx<double, 8, 8> equations = cv::Matx<double, 8, 8>::zeros();
  cv::Vec<double, 8> goals, solution;
  for (int i = 0; i < 4; ++i) {
    const auto [x, y] = from[i];
    for (int axis = 0; axis < 2; ++axis) {
      const int row = 2 * i + axis;
      const double goal = goals[row] = to[i][axis];
      equations(row, 3 * axis) = x;
      equations(row, 3 * axis + 1) = y;
      equations(row, 3 * axis + 2) = 1;
      equations(row, 6) = -goal * x;
      equations(row, 7) = -goal * y;
    }
  }
  TORCH_CHECK_VALUE(
      cv::solve(equations, goals, solution, cv::DECOMP_LU),
      "[perspective_matrix] three of the points are on a line; expected the "
      "corners of a quadrilateral. Use a smaller magnitude.");
  Matrix3 matrix;
  std::copy_n(solution.val, 8, matrix.values.begin());
  return matrix;
}

// torchvision's map from the source to the result is T C R(angle) Sh S C^-1,
// where C translates the origin to the center, T is the translation and Sh the
// shear. This is its inverse.
Matrix3
draw_affine(const AffineRanges& ranges, ImageSize size, SampleRng& rng) {
  constexpr double kRadians = 3.14159265358979323846 / 180;
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  const double angle = draw(ranges.degrees, rng) * kRadians;
  const double right = width * rng.uniform(-ranges.translate, ranges.translate);
  const double down = height * rng.uniform(-ranges.translate, ranges.translate);
  const double scale = draw(ranges.scale, rng);
  const double slant = std::tan(draw(ranges.shear, rng) * kRadians);
  return Matrix3::translation(width / 2, height / 2) *
         Matrix3{{1, slant, 0, 0, 1, 0, 0, 0, 1}} * Matrix3::rotation(-angle) *
         Matrix3::scaling(1 / scale, 1 / scale) *
         Matrix3::translation(-width / 2 - right, -height / 2 - down);
}

TransformPtr random_affine(const AffineRanges& ranges, float p) {
  checked("random_affine", ranges.degrees);
  checked("random_affine", {-ranges.translate, ranges.translate});
  checked("random_affine", ranges.scale, 0);
  checked("random_affine", ranges.shear);
  return drawn("random_affine", p, [ranges](SamplePlan& plan, SampleRng& rng) {
    plan.view(draw_affine(ranges, plan.size(), rng), plan.size());
  });
}

TransformPtr rand_crop(bool is_random) {
  const auto crop = [is_random](SamplePlan& plan, SampleRng& rng) {
    // Always drawn, so that later transforms draw the same numbers.
    const float row = rng.uniform(), column = rng.uniform();
    if (is_random) plan.set_crop_position(row, column);
  };
  const Describe center = [](ImagePreprocessing&) {};
  return drawn("rand_crop", 1, crop, false, is_random ? nullptr : center);
}

TransformPtr random_resized_crop(Range scale, Range ratio, float p) {
  checked("random_resized_crop", scale, 0);
  checked("random_resized_crop", ratio, 0);
  TERN_CHECK_VALUE(
      scale.high <= 1,
      "[random_resized_crop] scale goes up to {}; expected at most 1, the "
      "whole image.",
      scale.high);
  return drawn(
      "random_resized_crop",
      1,
      [scale, ratio, p](SamplePlan& plan, SampleRng& rng) {
        const bool is_random = rng.uniform() < p;
        const auto [top, left, height, width] =
            is_random ? random_part(plan.size(), scale, ratio, rng)
                      : middle_part(plan.size(), ratio);
        plan.crop(
            static_cast<double>(top),
            static_cast<double>(left),
            {height, width});
        plan.resize(plan.target());
      },
      /*resizes=*/true);
}

TransformPtr center_crop(float margin) {
  TERN_CHECK_VALUE(
      margin >= 0,
      "[center_crop] margin is {}; expected 0 or more.",
      margin);
  const auto cover = [margin](SamplePlan& plan, SampleRng&) {
    const ImageSize image = plan.size(), target = plan.target();
    const auto [down, across] = pixels_per_pixel(target, image);
    const double scale = (1 + margin) * std::max(down, across);
    const auto scaled = [&](int64_t size, int64_t least) {
      const double exact = static_cast<double>(size) * scale;
      return std::max<int64_t>(least, std::llround(exact));
    };
    plan.resize(
        {scaled(image.height, target.height),
         scaled(image.width, target.width)});
  };
  const auto describe = [margin](ImagePreprocessing& what) {
    what.resize = "center_crop";
    what.margin = margin;
  };
  return drawn("center_crop", 1, cover, /*resizes=*/true, describe);
}

}  // namespace tern
