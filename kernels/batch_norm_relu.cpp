#include "tern/kernels/batch_norm_relu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/parallel_for.h"

// Feature maps are read in blocks of pixels that stay in a core's cache while
// their mean, squares or products are summed. Each pass therefore reads memory
// once, and memory bandwidth determines the speed.

namespace tern {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlockBytes = 32 << 10;

/// Sums over some pixels, per channel.
struct Sums {
  double *first, *second;
};

/// Adds the mean of a block, and the squared differences from it, to `sums`.
/// \param from   [pixels, channels]
/// \param count  Number of pixels already in `sums`, which holds their mean and
///               squared differences. The block is merged into both (Chan et
///               al., 1983).
template <class Number>
TERN_CPU_LOOP void add_moments(
    const Number* from,
    int64_t pixels,
    int64_t channels,
    int64_t count,
    Sums sums) {
  const auto size = static_cast<double>(pixels);
  const double share = size / (size + static_cast<double>(count));
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats sum[4] = {}, x;
    for (int64_t i = 0; i < pixels; ++i) {
      load_floats(from + i * channels + c, x);
      sum[i % 4] += x;
    }
    const Floats mean =
        (sum[0] + sum[1] + sum[2] + sum[3]) / static_cast<float>(pixels);
    Floats squares[4] = {};
    for (int64_t i = 0; i < pixels; ++i) {
      load_floats(from + i * channels + c, x);
      x -= mean;
      squares[i % 4] += x * x;
    }
    squares[0] += squares[1] + squares[2] + squares[3];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      double& all = sums.first[c + lane];
      const double apart = static_cast<double>(mean[lane]) - all;
      all += apart * share;
      sums.second[c + lane] +=
          static_cast<double>(squares[0][lane]) +
          apart * apart * share * static_cast<double>(count);
    }
  }
}

/// `relu(x * factor + offset + other)`.
template <class Number>
TERN_CPU_LOOP void normalize_block(
    const Number* from,
    const Number* other,
    Number* to,
    int64_t pixels,
    int64_t channels,
    const float* factors,
    const float* offsets,
    bool relu) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats factor, offset, x, added;
    load_floats(factors + c, factor);
    load_floats(offsets + c, offset);
    for (int64_t i = c; i < pixels * channels; i += channels) {
      load_floats(from + i, x);
      x = x * factor + offset;
      if (other != nullptr) {
        load_floats(other + i, added);
        x += added;
      }
      if (relu) x = x < 0.0F ? Floats{} : x;  // NaN stays NaN
      store_floats(x, to + i);
    }
  }
}

/// Loads the gradient of the result, zeroed where relu clipped.
template <class Number>
TERN_CPU_LOOP void
load_gradient(const Number* gradient, const Number* result, Floats& to) {
  load_floats(gradient, to);
  if (result == nullptr) return;
  Floats y;
  load_floats(result, y);
  to = y <= 0.0F ? Floats{} : to;
}

/// Adds the gradients, and their products with the differences from the mean.
template <class Number>
TERN_CPU_LOOP void add_products(
    const Number* gradient,
    const Number* result,
    const Number* images,
    int64_t pixels,
    int64_t channels,
    const float* means,
    Sums sums) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats mean, first[2] = {}, second[2] = {}, g, x;
    load_floats(means + c, mean);
    for (int64_t i = 0; i < pixels; ++i) {
      const int64_t at = i * channels + c;
      load_gradient(
          gradient + at,
          result == nullptr ? nullptr : result + at,
          g);
      load_floats(images + at, x);
      first[i % 2] += g;
      second[i % 2] += g * (x - mean);
    }
    first[0] += first[1];
    second[0] += second[1];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums.first[c + lane] += static_cast<double>(first[0][lane]);
      sums.second[c + lane] += static_cast<double>(second[0][lane]);
    }
  }
}

/// Coefficients of the images' gradient: g * factor - (x * slope + offset).
struct Slopes {
  const float *factor, *slope, *offset;
};

template <class Number>
TERN_CPU_LOOP void differentiate(
    const Number* gradient,
    const Number* result,
    const Number* images,
    int64_t pixels,
    int64_t channels,
    Slopes slopes,
    Number* of_images,
    Number* of_other) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats factor, slope, offset, g, x;
    load_floats(slopes.factor + c, factor);
    load_floats(slopes.slope + c, slope);
    load_floats(slopes.offset + c, offset);
    for (int64_t i = c; i < pixels * channels; i += channels) {
      load_gradient(gradient + i, result == nullptr ? nullptr : result + i, g);
      load_floats(images + i, x);
      store_floats(g * factor - (x * slope + offset), of_images + i);
      if (of_other != nullptr) store_floats(g, of_other + i);
    }
  }
}

/// Feature maps [pixels, channels], divided into pieces for threads and caches.
struct Maps {
  explicit Maps(const Tensor& images)
      : channels(images.size(1)),
        pixels(images.numel() / channels),
        threads(std::clamp<int64_t>(
            images.numel() / kElementGrain,
            1,
            std::min<int64_t>(pixels, at::get_num_threads()))),
        block(std::max<int64_t>(
            kBlockBytes / channels / images.element_size(),
            8)) {}

  /// Calls `f(thread, begin, end)` for blocks of pixels, in parallel.
  template <class F>
  void for_each_block(const F& f) const {
    parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t thread = first; thread < last; ++thread) {
        const int64_t end = pixels * (thread + 1) / threads;
        for (int64_t i = pixels * thread / threads; i < end; i += block) {
          f(thread, i, std::min(i + block, end));
        }
      }
    });
  }

  int64_t channels, pixels, threads, block;
};

/// One set of sums per thread.
class ThreadSums {
 public:
  explicit ThreadSums(const Maps& maps)
      : channels_(maps.channels), sums_(maps.threads * channels_ * 2) {}

  Sums of(int64_t thread) {
    double* const begin = sums_.data() + thread * channels_ * 2;
    return {begin, begin + channels_};
  }

 private:
  int64_t channels_;
  std::vector<double> sums_;
};

/// Statistics of the channels.
struct Statistics {
  Tensor mean, invstd;           // [C] kFloat
  std::vector<double> variance;  // biased
};

template <class Number>
const Number* numbers(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const Number*>(tensor.const_data_ptr())
                          : nullptr;
}

template <class Number>
Statistics statistics_of(const Tensor& images, double eps) {
  const Maps maps(images);
  ThreadSums sums(maps);
  std::vector<int64_t> counts(maps.threads);
  maps.for_each_block([&](int64_t thread, int64_t begin, int64_t end) {
    on_cpu_isa<add_moments<Number>>(
        numbers<Number>(images) + begin * maps.channels,
        end - begin,
        maps.channels,
        counts[thread],
        sums.of(thread));
    counts[thread] += end - begin;
  });
  const auto floats = images.options().dtype(torch::kFloat);
  Statistics result{
      at::empty({maps.channels}, floats),
      at::empty({maps.channels}, floats),
      std::vector<double>(maps.channels)};
  for (int64_t c = 0; c < maps.channels; ++c) {
    double mean = 0, squares = 0, count = 0;
    for (int64_t thread = 0; thread < maps.threads; ++thread) {
      const Sums of_thread = sums.of(thread);
      const auto size = static_cast<double>(counts[thread]);
      const double apart = of_thread.first[c] - mean;
      mean += apart * size / (count + size);
      squares +=
          of_thread.second[c] + apart * apart * count * size / (count + size);
      count += size;
    }
    result.variance[c] = squares / count;
    result.mean.data_ptr<float>()[c] = static_cast<float>(mean);
    result.invstd.data_ptr<float>()[c] =
        static_cast<float>(1 / std::sqrt(squares / count + eps));
  }
  return result;
}

template <class Number>
Tensor normalized(
    const Tensor& images,
    const Tensor& other,
    const Statistics& statistics,
    const BatchNormTensors& norm,
    bool relu) {
  const Maps maps(images);
  std::vector<float> factors(maps.channels), offsets(maps.channels);
  for (int64_t c = 0; c < maps.channels; ++c) {
    factors[c] = norm.weight.const_data_ptr<float>()[c] *
                 statistics.invstd.const_data_ptr<float>()[c];
    offsets[c] = norm.bias.const_data_ptr<float>()[c] -
                 statistics.mean.const_data_ptr<float>()[c] * factors[c];
  }
  Tensor result = at::empty_like(images);
  maps.for_each_block([&](int64_t, int64_t begin, int64_t end) {
    const int64_t at = begin * maps.channels;
    on_cpu_isa<normalize_block<Number>>(
        numbers<Number>(images) + at,
        other.defined() ? numbers<Number>(other) + at : nullptr,
        static_cast<Number*>(result.data_ptr()) + at,
        end - begin,
        maps.channels,
        factors.data(),
        offsets.data(),
        relu);
  });
  return result;
}

/// What forward saves for backward.
struct Kept {
  Tensor images, result;  // the result only with relu
  Tensor weight, mean, invstd;
};

struct Gradients {
  Tensor images, other, weight, bias;
};

template <class Number>
Gradients
gradients_of(const Tensor& gradient, const Kept& kept, bool has_other) {
  const Maps maps(kept.images);
  const auto* const given = numbers<Number>(gradient);
  const auto* const result = numbers<Number>(kept.result);
  const auto* const images = numbers<Number>(kept.images);
  const auto from = [](const Number* all, int64_t at) {
    return all == nullptr ? nullptr : all + at;
  };
  ThreadSums sums(maps);
  maps.for_each_block([&](int64_t thread, int64_t begin, int64_t end) {
    const int64_t at = begin * maps.channels;
    on_cpu_isa<add_products<Number>>(
        given + at,
        from(result, at),
        images + at,
        end - begin,
        maps.channels,
        kept.mean.const_data_ptr<float>(),
        sums.of(thread));
  });
  Gradients gradients{
      at::empty_like(kept.images),
      {},
      at::empty_like(kept.weight),
      at::empty_like(kept.weight)};
  // Without relu this is the gradient itself.
  if (has_other) {
    gradients.other = result ? at::empty_like(kept.images) : gradient;
  }
  std::vector<float> factors(maps.channels), slopes(maps.channels);
  std::vector<float> offsets(maps.channels);
  const auto count = static_cast<double>(maps.pixels);
  for (int64_t c = 0; c < maps.channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t thread = 0; thread < maps.threads; ++thread) {
      sum += sums.of(thread).first[c];
      product += sums.of(thread).second[c];
    }
    const double invstd = kept.invstd.const_data_ptr<float>()[c];
    const double factor = kept.weight.const_data_ptr<float>()[c] * invstd;
    const double slope = factor * invstd * invstd * product / count;
    factors[c] = static_cast<float>(factor);
    slopes[c] = static_cast<float>(slope);
    offsets[c] = static_cast<float>(
        factor * sum / count - kept.mean.const_data_ptr<float>()[c] * slope);
    gradients.weight.data_ptr<float>()[c] =
        static_cast<float>(product * invstd);
    gradients.bias.data_ptr<float>()[c] = static_cast<float>(sum);
  }
  auto* const of_images = static_cast<Number*>(gradients.images.data_ptr());
  auto* const of_other = has_other && result
                             ? static_cast<Number*>(gradients.other.data_ptr())
                             : nullptr;
  maps.for_each_block([&](int64_t, int64_t begin, int64_t end) {
    const int64_t at = begin * maps.channels;
    on_cpu_isa<differentiate<Number>>(
        given + at,
        from(result, at),
        images + at,
        end - begin,
        maps.channels,
        Slopes{factors.data(), slopes.data(), offsets.data()},
        of_images + at,
        of_other == nullptr ? nullptr : of_other + at);
  });
  return gradients;
}

/// Calls `f` with the C++ type of the values' dtype.
template <class F>
auto in_type_of(const Tensor& images, const F& f) {
  return images.scalar_type() == torch::kFloat
             ? f(std::type_identity<float>())
             : f(std::type_identity<uint16_t>());
}

class BatchNormRelu : public torch::autograd::Function<BatchNormRelu> {
 public:
  static Tensor forward(
      AutogradContext* context,
      const Tensor& images,
      const std::optional<Tensor>& other,
      const Tensor& weight,
      const Tensor& /*bias*/,
      const BatchNormTensors& norm,
      bool relu) {
    Statistics statistics;
    Tensor result = in_type_of(images, [&](auto type) {
      using Number = typename decltype(type)::type;
      statistics = statistics_of<Number>(images, norm.eps);
      const Tensor added =
          other ? other->contiguous(at::MemoryFormat::ChannelsLast) : Tensor();
      return normalized<Number>(images, added, statistics, norm, relu);
    });
    move_running(statistics, norm, images.numel() / images.size(1));
    context->save_for_backward(
        {images,
         relu ? result : Tensor(),
         weight,
         statistics.mean,
         statistics.invstd});
    context->saved_data["other"] = other.has_value();
    context->saved_data["eps"] = norm.eps;
    return result;
  }

  static variable_list backward(
      AutogradContext* context,
      const variable_list& given) {
    const variable_list saved = context->get_saved_variables();
    const Kept kept{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const bool has_other = context->saved_data["other"].toBool();
    const Gradients gradients =
        torch::GradMode::is_enabled()
            ? by_operations(
                  given[0],
                  kept,
                  has_other,
                  context->saved_data["eps"].toDouble())
            : in_type_of(kept.images, [&](auto type) {
                return gradients_of<typename decltype(type)::type>(
                    given[0].contiguous(at::MemoryFormat::ChannelsLast),
                    kept,
                    has_other);
              });
    return {
        gradients.images,
        gradients.other,
        gradients.weight,
        gradients.bias,
        {},
        {}};
  }

 private:
  static void move_running(
      const Statistics& statistics,
      const BatchNormTensors& norm,
      int64_t pixels) {
    // Keeps version counters unchanged, so that tensors saved by an earlier
    // pass stay valid, as in LibTorch's BatchNorm.
    const at::AutoDispatchBelowADInplaceOrView unseen;
    const auto count = static_cast<double>(pixels);
    Tensor variance = at::empty_like(statistics.mean);
    for (size_t c = 0; c < statistics.variance.size(); ++c) {
      variance.data_ptr<float>()[c] =
          static_cast<float>(statistics.variance[c] * count / (count - 1));
    }
    Tensor(norm.running_mean).lerp_(statistics.mean, norm.momentum);
    Tensor(norm.running_var).lerp_(variance, norm.momentum);
  }

  /// Computes the same with LibTorch's operations, which are differentiable,
  /// for gradient penalties.
  static Gradients by_operations(
      const Tensor& given,
      const Kept& kept,
      bool has_other,
      double eps) {
    const Tensor gradient = kept.result.defined()
                                ? at::threshold_backward(given, kept.result, 0)
                                : given;
    auto [images, weight, bias] = at::native_batch_norm_backward(
        gradient,
        kept.images,
        kept.weight,
        {},
        {},
        kept.mean,
        kept.invstd,
        /*train=*/true,
        eps,
        {true, true, true});
    return {images, has_other ? gradient : Tensor(), weight, bias};
  }
};

/// True if something observes single operations, which a fused one would hide:
/// a dispatcher key that is enabled for this thread (keep_fp32, audits), a
/// trace, or a replaced batch_norm.
bool are_operations_watched() {
  static const c10::OperatorHandle batch_norm =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::batch_norm", "");
  const auto is_on = [](c10::DispatchKey key) {
    return c10::impl::tls_is_dispatch_key_included(key);
  };
  return is_on(c10::DispatchKey::AutocastPrivateUse1) ||
         is_on(c10::DispatchKey::TESTING_ONLY_GenericMode) ||
         is_on(c10::DispatchKey::Python) ||
         is_on(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         torch::jit::tracer::isTracing() ||
         batch_norm.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
}

bool is_number_for_each(const Tensor& tensor, int64_t channels) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() == 1 &&
         tensor.size(0) == channels && tensor.is_contiguous() &&
         tensor.scalar_type() == torch::kFloat;
}

}  // namespace

bool fits_batch_norm_relu(
    const Tensor& images,
    const Tensor& other,
    const BatchNormTensors& norm) {
  if (images.dim() != 4 || !images.device().is_cpu()) return false;
  const auto type = images.scalar_type();
  const int64_t channels = images.size(1);
  if ((type != torch::kFloat && type != torch::kBFloat16) ||
      channels % kLanes != 0 ||
      images.numel() / std::max<int64_t>(channels, 1) < 2) {
    return false;
  }
  const std::array<Tensor, 4> numbers = {
      norm.weight,
      norm.bias,
      norm.running_mean,
      norm.running_var};
  return images.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         (!other.defined() ||
          (other.sizes() == images.sizes() && other.device().is_cpu() &&
           other.scalar_type() == type)) &&
         std::ranges::all_of(
             numbers,
             [&](const Tensor& each) {
               return is_number_for_each(each, channels);
             }) &&
         !are_operations_watched();
}

Tensor batch_norm_relu(
    const Tensor& images,
    const Tensor& other,
    const BatchNormTensors& norm,
    bool relu) {
  RECORD_FUNCTION("tern::batch_norm_relu", std::vector<c10::IValue>{images});
  return BatchNormRelu::apply(
      images,
      other.defined() ? std::optional(other) : std::nullopt,
      norm.weight,
      norm.bias,
      norm,
      relu);
}

}  // namespace tern
