#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern::testing_support {

/// One step of a random module and its C++ code.
struct RandomStep {
  std::string text;
  std::function<torch::Tensor(const torch::Tensor&)> run;
};

/// A module that runs steps in sequence, in eval mode.
struct RandomModuleImpl : torch::nn::Module {
  Tensors forward(const torch::Tensor& input) {
    torch::Tensor x = input;
    Tensors outputs;
    for (size_t i = 0; i < steps.size(); ++i) {
      x = steps[i].run(x);
      if (noise > 0) x = moved(x);
      if (i == shown) outputs.push_back(x);
    }
    outputs.push_back(x);
    return outputs;
  }
  std::string text() const {
    std::string all;
    for (const RandomStep& step : steps) all += "  " + step.text + "\n";
    return all;
  }
  /// Perturbs numbers as rounding does. Integers are left alone, since they are
  /// mostly exact.
  torch::Tensor moved(const torch::Tensor& x) const {
    if (!x.is_floating_point()) return x;
    return torch::where(
        x == x.round(),
        x,
        x * (1 + noise * torch::randn_like(x)));
  }
  std::vector<RandomStep> steps;
  torch::Tensor trained =  // a Learner requires a parameter
      register_parameter("trained", torch::zeros({1}));
  size_t shown = SIZE_MAX;  // index of a step whose result is an output too
  double noise = 0;         // relative noise added to the result of each step
};

/// Draws the arguments of steps and registers their weights in the module.
class RandomArguments {
 public:
  RandomArguments(std::mt19937_64& random, torch::nn::Module& owner)
      : random_(random), owner_(owner) {}

  int64_t integer(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool yes() { return integer(0, 1) == 1; }
  double real(double least, double most) {  // two digits, for readability
    return std::round(
               100 * std::uniform_real_distribution(least, most)(random_)) /
           100;
  }
  template <typename T>
  T one_of(std::vector<T> all) {
    return all[integer(0, std::ssize(all) - 1)];
  }
  /// A dimension other than the batch, counted from either end.
  int64_t dim(const torch::Tensor& x, int64_t first = 1) {
    const int64_t dim = integer(first, x.dim() - 1);
    return yes() ? dim : dim - x.dim();
  }
  torch::Tensor weight(at::IntArrayRef sizes, double scale = 1) {
    return owner_.register_parameter(
        name(),
        torch::randn(sizes) * scale,
        /*requires_grad=*/false);
  }
  torch::Tensor buffer(const torch::Tensor& numbers) {
    return owner_.register_buffer(name(), numbers);
  }
  template <typename Holder>
  Holder layer(Holder made) {
    for (torch::Tensor& p : made->parameters()) p.requires_grad_(false);
    return owner_.register_module(name(), made);
  }

 private:
  std::string name() { return "part" + std::to_string(count_++); }

  std::mt19937_64& random_;
  torch::nn::Module& owner_;
  int64_t count_ = 0;
};

/// Draws a step for a tensor like `x`; nullopt if it does not support `x`.
using DrawStep = std::function<
    std::optional<RandomStep>(RandomArguments& draw, const torch::Tensor& x)>;

/// All steps by name. The first dimension of their inputs and outputs is the
/// batch; images are [N, C, H, W], sequences [N, T, C], rows [N, C].
inline const std::map<std::string, DrawStep>& random_steps();

/// A random module and its input for two samples.
struct RandomCase {
  std::shared_ptr<RandomModuleImpl> module;
  torch::Tensor input;
  bool has_any_size = false;  // of the images

  /// Inputs of other sizes; equal arguments give equal inputs.
  torch::Tensor inputs(int64_t samples, bool is_larger) const {
    auto generator = at::detail::createCPUGenerator(
        static_cast<uint64_t>(100 * samples + (is_larger ? 1 : 0)));
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes[0] = samples;
    if (is_larger) {
      sizes[2] += 3;
      sizes[3] += 1;
    }
    return input.is_floating_point()
               ? torch::randn(sizes, generator)
               : torch::randint(10, sizes, generator, torch::kLong);
  }
};

namespace random_modules {

using torch::Tensor;
using Draw = RandomArguments;
using Step = std::optional<RandomStep>;

inline bool is_float(const Tensor& x) {
  return x.is_floating_point();
}
inline bool is_image(const Tensor& x) {
  return is_float(x) && x.dim() == 4;
}
inline bool is_sequence(const Tensor& x) {
  return is_float(x) && x.dim() == 3;
}
inline bool is_row(const Tensor& x) {
  return is_float(x) && x.dim() == 2;
}

using Steps = std::map<std::string, DrawStep>;

/// The norm of equal numbers would depend on rounding only.
inline bool is_varied(const Tensor& x) {
  return x.std(-1, /*unbiased=*/false).min().item<double>() > 0.05;
}

/// A step without arguments, for floats of any shape.
template <typename Function>
void add_plain(Steps& steps, const std::string& text, Function function) {
  steps[text] = [=](Draw&, const Tensor& x) -> Step {
    if (!is_float(x)) return std::nullopt;
    return RandomStep{text, function};
  };
}

/// A step for the inputs that `takes` accepts: floats of any shape by default.
struct Plain {
  const char* text;
  Tensor (*run)(const Tensor& x);
  bool (*takes)(const Tensor& x) = is_float;
};

inline void add_table(Steps& steps, const std::vector<Plain>& table) {
  for (const Plain& plain : table) {
    steps[plain.text] = [plain](Draw&, const Tensor& x) -> Step {
      if (!plain.takes(x)) return std::nullopt;
      return RandomStep{plain.text, plain.run};
    };
  }
}

/// Converts an image to a volume [N, C, D, H, W] and back.
inline Tensor volume(const Tensor& x) {
  return torch::stack({x, x.sin(), x.cos()}, 2);
}
inline Tensor image(const Tensor& volume) {
  return volume.flatten(1, 2);
}

inline void add_functions(Steps& steps) {
  using X = const Tensor&;
  add_plain(steps, "x.abs()", [](X x) { return x.abs(); });
  add_plain(steps, "(x * 2 + 0.17).ceil()", [](X x) {
    return (x * 2 + 0.17).ceil();
  });
  add_plain(steps, "(x * 3 + 0.17).floor()", [](X x) {
    return (x * 3 + 0.17).floor();
  });
  add_plain(steps, "(x * 4 + 0.17).round()", [](X x) {
    return (x * 4 + 0.17).round();
  });
  add_plain(steps, "x.cos()", [](X x) { return x.cos(); });
  add_plain(steps, "x.sin()", [](X x) { return x.sin(); });
  add_plain(steps, "x.erf()", [](X x) { return x.erf(); });
  add_plain(steps, "(x * 0.2).exp()", [](X x) { return (x * 0.2).exp(); });
  add_plain(steps, "(x.abs() + 0.5).log()", [](X x) {
    return (x.abs() + 0.5).log();
  });
  add_plain(steps, "x.neg()", [](X x) { return x.neg(); });
  add_plain(steps, "(x + 0.17).sign() + x", [](X x) {
    return (x + 0.17).sign() + x;
  });
  add_plain(steps, "(x.abs() + 0.1).sqrt()", [](X x) {
    return (x.abs() + 0.1).sqrt();
  });
  add_plain(steps, "x.tanh()", [](X x) { return x.tanh(); });
  add_plain(steps, "x.relu()", [](X x) { return x.relu(); });
  add_plain(steps, "x.sigmoid()", [](X x) { return x.sigmoid(); });
  add_plain(steps, "hardsigmoid(x)", [](X x) { return torch::hardsigmoid(x); });
  add_plain(steps, "hardswish(x)", [](X x) { return torch::hardswish(x); });
  add_plain(steps, "silu(x)", [](X x) { return torch::silu(x); });
  add_plain(steps, "mish(x)", [](X x) { return torch::mish(x); });
  add_plain(steps, "gelu(x)", [](X x) { return torch::gelu(x); });
  add_plain(steps, "gelu(x, tanh)", [](X x) { return torch::gelu(x, "tanh"); });
  add_plain(steps, "softplus(x)", [](X x) { return at::softplus(x); });
  add_plain(steps, "selu(x)", [](X x) { return at::selu(x); });
  add_plain(steps, "celu(x)", [](X x) { return at::celu(x, 1.5); });
  add_plain(steps, "relu6(x)", [](X x) { return at::relu6(x); });
  add_plain(steps, "log_sigmoid(x)", [](X x) { return at::log_sigmoid(x); });
  add_plain(steps, "x.atan() + x.tan().tanh()", [](X x) {
    return x.atan() + x.tan().tanh();
  });
  add_plain(steps, "x.sinh().asinh() + (x.tanh() * 0.9).asin()", [](X x) {
    return x.sinh().asinh() + (x.tanh() * 0.9).asin();
  });
  add_plain(steps, "x.square() + x.abs().log1p()", [](X x) {
    return x.square() + x.abs().log1p();
  });
  add_plain(steps, "x.abs().add(1).rsqrt()", [](X x) {
    return x.abs().add(1).rsqrt();
  });
  add_plain(steps, "x.abs().add(1).reciprocal()", [](X x) {
    return x.abs().add(1).reciprocal();
  });
  add_plain(steps, "(x * 0.2).expm1()", [](X x) { return (x * 0.2).expm1(); });
  add_plain(steps, "x.clone()", [](X x) { return x.clone(); });
  add_plain(steps, "alias(x).detach().contiguous()", [](X x) {
    return at::alias(x).detach().contiguous();
  });
  add_plain(steps, "dropout(x, 0.5, false)", [](X x) {
    return torch::dropout(x, 0.5, false);
  });
  add_plain(steps, "dropout(x, 0, true)", [](X x) {
    return torch::dropout(x, 0, true);
  });
  add_plain(steps, "feature_dropout(x, 0.5, false)", [](X x) {
    return x.dim() < 2 ? x : torch::feature_dropout(x, 0.5, false);
  });
  add_table(
      steps,
      {{"(x.tanh() * 0.9).acos()", [](X x) { return (x.tanh() * 0.9).acos(); }},
       {"(x.tanh() * 0.9).atanh()",
        [](X x) { return (x.tanh() * 0.9).atanh(); }},
       {"(x.abs() + 1.1).acosh()", [](X x) { return (x.abs() + 1.1).acosh(); }},
       {"(x * 0.2).cosh()", [](X x) { return (x * 0.2).cosh(); }},
       {"(x * 0.2).exp2()", [](X x) { return (x * 0.2).exp2(); }},
       {"x.tanh().erfc()", [](X x) { return x.tanh().erfc(); }},
       {"(x.abs() + 0.5).log2()", [](X x) { return (x.abs() + 0.5).log2(); }},
       {"(x.abs() + 0.5).log10()", [](X x) { return (x.abs() + 0.5).log10(); }},
       {"(x * 2 + 0.17).trunc()", [](X x) { return (x * 2 + 0.17).trunc(); }},
       {"(x * 2 + 0.17).frac()", [](X x) { return (x * 2 + 0.17).frac(); }},
       {"rrelu(x, 0.1, 0.3)", [](X x) { return torch::rrelu(x, 0.1, 0.3); }},
       {"alpha_dropout(x, 0.5, false)",
        [](X x) { return torch::alpha_dropout(x, 0.5, false); }},
       {"feature_alpha_dropout(x, 0.5, false)",
        [](X x) { return torch::feature_alpha_dropout(x, 0.5, false); }}});
  steps["hardshrink, softshrink, threshold"] = [](Draw& draw,
                                                  const Tensor& x) -> Step {
    const double a = draw.real(0.05, 1);
    if (!is_float(x)) return std::nullopt;
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{fmt::format("hardshrink(x, {})", a), [=](X t) {
                            return torch::hardshrink(t, a);
                          }};
      case 1:
        return RandomStep{fmt::format("softshrink(x, {})", a), [=](X t) {
                            return at::softshrink(t, a);
                          }};
      default:
        return RandomStep{fmt::format("threshold(x, {}, -0.5)", a), [=](X t) {
                            return torch::threshold(t, a, -0.5);
                          }};
    }
  };
  steps["prelu"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t slopes = draw.yes() ? 1 : x.size(1);
    const Tensor weight = draw.weight({slopes});
    return RandomStep{fmt::format("prelu(x, weight [{}])", slopes), [=](X t) {
                        return torch::prelu(t, weight);
                      }};
  };
  steps["glu"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    if (x.size(dim) % 2 == 0) {
      return RandomStep{fmt::format("glu(x, {})", dim), [=](X t) {
                          return torch::glu(t, dim);
                        }};
    }
    return RandomStep{
        fmt::format("glu(cat({{x, x.cos()}}, {0}), {0})", dim),
        [=](X t) {
          return torch::glu(torch::cat({t, t.cos()}, dim), dim);
        }};
  };
  steps["leaky_relu, elu"] = [](Draw& draw, const Tensor& x) -> Step {
    const double a = draw.real(0.05, 1.5);
    if (!is_float(x)) return std::nullopt;
    if (draw.yes()) {
      return RandomStep{fmt::format("leaky_relu(x, {})", a), [=](X t) {
                          return torch::leaky_relu(t, a);
                        }};
    }
    return RandomStep{fmt::format("elu(x, {})", a), [=](X t) {
                        return torch::elu(t, a);
                      }};
  };
  steps["clamp"] = [](Draw& draw, const Tensor& x) -> Step {
    const double low = draw.real(-1, 0), high = draw.real(0, 1);
    if (!is_float(x)) return std::nullopt;
    switch (draw.integer(0, 4)) {
      case 0:
        return RandomStep{fmt::format("x.clamp({}, {})", low, high), [=](X t) {
                            return t.clamp(low, high);
                          }};
      case 1:
        return RandomStep{fmt::format("x.clamp({}, nullopt)", low), [=](X t) {
                            return t.clamp(low, std::nullopt);
                          }};
      case 2:
        return RandomStep{fmt::format("x.clamp(nullopt, {})", high), [=](X t) {
                            return t.clamp(std::nullopt, high);
                          }};
      case 3:
        return RandomStep{fmt::format("x.clamp_min({})", low), [=](X t) {
                            return t.clamp_min(low);
                          }};
      default:
        return RandomStep{
            fmt::format("hardtanh(x, {}, {})", low, high),
            [=](X t) { return torch::hardtanh(t, low, high); }};
    }
  };
}

inline void add_in_place(Steps& steps) {
  using X = const Tensor&;
  add_plain(steps, "y = x + 1; y.relu_()", [](X x) {
    Tensor y = x + 1;
    return y.relu_();
  });
  add_plain(steps, "y = x * 2; y.add_(x).sigmoid_()", [](X x) {
    Tensor y = x * 2;
    return y.add_(x).sigmoid_();
  });
  add_plain(steps, "y = x.clone(); y.mul_(0.5); y.sub_(1)", [](X x) {
    Tensor y = x.clone();
    y.mul_(0.5);
    y.sub_(1);
    return y;
  });
  add_plain(steps, "y = x.clone(); y.clamp_(-1, 1); y + x", [](X x) {
    Tensor y = x.clone();
    y.clamp_(-1, 1);
    return y + x;
  });
  add_plain(steps, "y = zeros_like(x); y.add_(x.sin())", [](X x) {
    Tensor y = torch::zeros_like(x);
    return y.add_(x.sin());
  });
  add_plain(steps, "y = x.clone(); y.masked_fill_(x > 0.517, 0.25)", [](X x) {
    Tensor y = x.clone();
    return y.masked_fill_(x > 0.517, 0.25);
  });
  add_plain(steps, "y = x * 2; y.zero_(); y + x", [](X x) {
    Tensor y = x * 2;
    y.zero_();
    return y + x;
  });
  // Writes into part of a tensor that is read later.
  add_plain(steps, "y = x.clone(); y.select(0, 0).relu_(); y", [](X x) {
    Tensor y = x.clone();
    y.select(0, 0).relu_();
    return y;
  });
  add_plain(
      steps,
      "y = x.clone(); v = y.view(-1); y.mul_(2); y + v[0]",
      [](X x) {
        Tensor y = x.clone();
        const Tensor v = y.view({-1});
        y.mul_(2);
        return y + v[0];
      });
}

inline void add_arithmetic(Steps& steps) {
  using X = const Tensor&;
  add_table(
      steps,
      {{"rsub(x, x.cos(), 0.5)",
        [](X x) { return torch::rsub(x, x.cos(), 0.5); }},
       {"rsub(x, 0.5, 2)", [](X x) { return torch::rsub(x, 0.5, 2); }},
       {"addcdiv(x, x.sin(), x.abs() + 1, 0.5)",
        [](X x) { return torch::addcdiv(x, x.sin(), x.abs() + 1, 0.5); }},
       {"x.clamp(x.sin(), x.sin() + 0.5)",
        [](X x) { return x.clamp(x.sin(), x.sin() + 0.5); }},
       {"x.clamp_max(x.cos())", [](X x) { return x.clamp_max(x.cos()); }},
       {"x.div(0.3, trunc)", [](X x) { return x.div(0.3, "trunc"); }}});
  steps["clamp_max, max, min"] = [](Draw& draw, const Tensor& x) -> Step {
    const double a = draw.real(-1, 1);
    if (!is_float(x)) return std::nullopt;
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{fmt::format("x.clamp_max({})", a), [=](X t) {
                            return t.clamp_max(a);
                          }};
      case 1:
        return RandomStep{fmt::format("x.min(x * {})", a), [=](X t) {
                            return t.min(t * a);
                          }};
      default:
        return RandomStep{fmt::format("x.max(x * {})", a), [=](X t) {
                            return t.max(t * a);
                          }};
    }
  };
  add_plain(steps, "1 - x", [](X x) { return 1 - x; });
  add_plain(steps, "2 / (x.abs() + 1)", [](X x) { return 2 / (x.abs() + 1); });
  add_plain(steps, "x + x", [](X x) { return x + x; });
  add_plain(steps, "x.sub(0.5)", [](X x) { return x.sub(0.5); });
  add_plain(steps, "x.add(x.cos(), 2)", [](X x) { return x.add(x.cos(), 2); });
  add_plain(steps, "x.abs().pow(1.5)", [](X x) { return x.abs().pow(1.5); });
  add_plain(steps, "x.pow(2)", [](X x) { return x.pow(2); });
  add_plain(steps, "x.abs().add(0.5).pow(x.tanh())", [](X x) {
    return x.abs().add(0.5).pow(x.tanh());
  });
  add_plain(steps, "maximum(x, minimum(x.sin(), x.cos()))", [](X x) {
    return torch::maximum(x, torch::minimum(x.sin(), x.cos()));
  });
  add_plain(steps, "x * x.size(0)", [](X x) { return x * x.size(0); });
  add_plain(steps, "x / x.size(1)", [](X x) {
    return x.dim() < 2 ? x : x / x.size(1);
  });
  add_plain(steps, "x / sqrt(x.size(-1))", [](X x) {
    return x.dim() < 2 ? x : x / std::sqrt(static_cast<double>(x.size(-1)));
  });
  add_plain(steps, "x / x.size(0)", [](X x) { return x / x.size(0); });
  add_plain(steps, "x.remainder(0.7)", [](X x) { return x.remainder(0.7); });
  add_plain(steps, "x.fmod(0.7)", [](X x) { return x.fmod(0.7); });
  add_plain(steps, "x.div(0.3, floor)", [](X x) {
    return x.div(0.3, "floor");
  });
  add_plain(steps, "lerp(x, x.sin(), 0.3)", [](X x) {
    return x.lerp(x.sin(), 0.3);
  });
  add_plain(steps, "addcmul(x, x.sin(), x.cos(), 0.5)", [](X x) {
    return x.addcmul(x.sin(), x.cos(), 0.5);
  });
  steps["with a weight"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    std::vector<int64_t> sizes(x.dim() - 1, 1);
    sizes[0] = x.size(1);
    const Tensor w = draw.weight(sizes);
    const std::string text = fmt::format("weight [{}]", fmt::join(sizes, ", "));
    switch (draw.integer(0, 3)) {
      case 0:
        return RandomStep{"x + " + text, [=](X t) { return t + w; }};
      case 1:
        return RandomStep{"x - " + text, [=](X t) { return t - w; }};
      case 2:
        return RandomStep{text + " * x", [=](X t) { return w * t; }};
      default:
        return RandomStep{"x / (1 + weight.abs()), " + text, [=](X t) {
                            return t / (1 + w.abs());
                          }};
    }
  };
  // Numbers of mixed dtypes, which PyTorch promotes.
  add_plain(steps, "(x * 4 + 0.17).round().to(kLong) / 3 + x", [](X x) {
    return (x * 4 + 0.17).round().to(torch::kLong) / 3 + x;
  });
  add_plain(
      steps,
      "y = (x * 4 + 0.17).to(kLong); (y * 2 - 1).abs() + x",
      [](X x) {
        const Tensor y = (x * 4 + 0.17).to(torch::kLong);
        return (y * 2 - 1).abs() + x;
      });
  add_plain(steps, "(x * 4 + 0.17).to(kInt).clamp(-2, 3).to(kFloat)", [](X x) {
    return (x * 4 + 0.17).to(torch::kInt).clamp(-2, 3).to(torch::kFloat);
  });
  add_plain(steps, "x.to(kDouble).tanh().to(kFloat)", [](X x) {
    return x.to(torch::kDouble).tanh().to(torch::kFloat);
  });
  add_plain(steps, "(x + x.to(kDouble)).type_as(x)", [](X x) {
    return (x + x.to(torch::kDouble)).type_as(x);
  });
  add_plain(steps, "(x * 4 + 0.17).to(kLong).floor_divide(3) + x", [](X x) {
    return (x * 4 + 0.17).to(torch::kLong).floor_divide(3) + x;
  });
  add_plain(steps, "(x * 4 + 0.17).to(kLong).remainder(3) + x", [](X x) {
    return (x * 4 + 0.17).to(torch::kLong).remainder(3) + x;
  });
}

inline void add_comparisons(Steps& steps) {
  using X = const Tensor&;
  // Of two booleans, then converted to a number.
  struct Logic {
    const char* name;
    Tensor (*run)(X a, X b);
  };
  static const std::vector<Logic> logic = {
      {"__and__", [](X a, X b) { return torch::__and__(a, b); }},
      {"__or__", [](X a, X b) { return torch::__or__(a, b); }},
      {"__xor__", [](X a, X b) { return torch::__xor__(a, b); }},
      {"bitwise_and", [](X a, X b) { return a.bitwise_and(b); }},
      {"bitwise_or", [](X a, X b) { return a.bitwise_or(b); }},
      {"bitwise_xor", [](X a, X b) { return a.bitwise_xor(b); }},
      {"logical_and", [](X a, X b) { return a.logical_and(b); }},
      {"logical_or", [](X a, X b) { return a.logical_or(b); }},
      {"logical_xor", [](X a, X b) { return a.logical_xor(b); }}};
  for (const Logic& kind : logic) {
    steps[kind.name] = [kind](Draw& draw, const Tensor& x) -> Step {
      const double limit = draw.real(-1, 1) + 0.003;
      if (!is_float(x)) return std::nullopt;
      if (std::string(kind.name).starts_with("logical") && draw.yes()) {
        return RandomStep{
            fmt::format("{}(x.relu(), x > {}) + x", kind.name, limit),
            [=](X t) { return kind.run(t.relu(), t > limit) + t; }};
      }
      return RandomStep{
          fmt::format("where({}(x > 0.117, x < {}), x, 1)", kind.name, limit),
          [=](X t) {
            return torch::where(kind.run(t > 0.117, t < limit), t, 1);
          }};
    };
  }
  add_table(
      steps,
      {{"(x > 0.017).bitwise_not() * x",
        [](X x) { return (x > 0.017).bitwise_not() * x; }},
       {"(x * 3 + 0.17).to(kLong).bitwise_not() + x",
        [](X x) { return (x * 3 + 0.17).to(torch::kLong).bitwise_not() + x; }},
       {"(1 / (x - 0.5).relu()).isinf() * x",
        [](X x) { return (1 / (x - 0.5).relu()).isinf() * x; }},
       {"(x > -1.517).all() + x + (x > 1.517).any()",
        [](X x) { return (x > -1.517).all() + x + (x > 1.517).any(); }}});
  add_plain(steps, "where(x > 0.517, x, x * 0.5)", [](X x) {
    return torch::where(x > 0.517, x, x * 0.5);
  });
  add_plain(steps, "where(x <= 0.017, x.abs(), -x)", [](X x) {
    return torch::where(x <= 0.017, x.abs(), -x);
  });
  add_plain(steps, "where(x < x.sin() + 0.017, 1.0, x)", [](X x) {
    return torch::where(x < x.sin() + 0.017, 1.0, x);
  });
  add_plain(steps, "x.masked_fill(x > 0.517, 2)", [](X x) {
    return x.masked_fill(x > 0.517, 2);
  });
  add_plain(steps, "(x + 0.17).sign().eq(1) + x", [](X x) {
    return (x + 0.17).sign().eq(1) + x;
  });
  add_plain(steps, "(x + 0.17).sign().ne(-1).type_as(x) * x", [](X x) {
    return (x + 0.17).sign().ne(-1).type_as(x) * x;
  });
  add_plain(steps, "(x >= 0.317) * x", [](X x) { return (x >= 0.317) * x; });
  add_plain(steps, "(x < 0.317).to(kFloat) - x", [](X x) {
    return (x < 0.317).to(torch::kFloat) - x;
  });
  add_plain(steps, "(x > 0.017) + (x < 1.017) + x", [](X x) {
    return (x > 0.017) + (x < 1.017) + x;
  });
  add_plain(steps, "(x > 0.017) * (x < 1.017) * 2 + x", [](X x) {
    return (x > 0.017) * (x < 1.017) * 2 + x;
  });
  add_plain(steps, "((x > 0.017) & (x < 1.017)).to(kFloat) + x", [](X x) {
    return ((x > 0.017) & (x < 1.017)).to(torch::kFloat) + x;
  });
  add_plain(
      steps,
      "(x > 0.017).logical_or(x < -1.017).logical_not() * x",
      [](X x) { return (x > 0.017).logical_or(x < -1.017).logical_not() * x; });
  add_plain(steps, "(x > 0.017).sum(-1, true) + x", [](X x) {
    return (x > 0.017).sum(-1, true) + x;
  });
  add_plain(steps, "x.isnan().logical_not() * x", [](X x) {
    return x.isnan().logical_not() * x;
  });
  add_plain(
      steps,
      "maximum((x * 3 + 0.17).to(kLong), (x > 0.017).to(kLong)) + x",
      [](X x) {
        return torch::maximum(
                   (x * 3 + 0.17).to(torch::kLong),
                   (x > 0.017).to(torch::kLong)) +
               x;
      });
}

/// Computes in dtypes other than kFloat, with casts before and after.
inline void add_types(Steps& steps) {
  using X = const Tensor&;
  static const std::vector<Plain> kinds = {
      {"y.abs()", [](X y) { return y.abs(); }},
      {"y.sign()", [](X y) { return y.sign(); }},
      {"y.square()", [](X y) { return y.square(); }},
      {"y.cos()", [](X y) { return y.cos(); }},
      {"y.sigmoid()", [](X y) { return y.sigmoid(); }},
      {"y.exp2()", [](X y) { return (y * 0.2).exp2(); }},
      {"y.reciprocal()", [](X y) { return (y.abs() + 1).reciprocal(); }},
      {"y.relu()", [](X y) { return y.relu(); }},
      {"y.ceil()", [](X y) { return (y + 1).ceil(); }},
      {"y + y", [](X y) { return y + y; }},
      {"y * 2 - 1", [](X y) { return y * 2 - 1; }},
      {"y / 3", [](X y) { return y / 3; }},
      {"y.add(1.5)", [](X y) { return y.add(1.5); }},
      {"rsub(y, 2)", [](X y) { return torch::rsub(y, 2); }},
      {"y.pow(2)", [](X y) { return y.pow(2); }},
      {"y.remainder(2)", [](X y) { return y.remainder(2); }},
      {"y.fmod(2)", [](X y) { return y.fmod(2); }},
      {"y.floor_divide(2)", [](X y) { return y.floor_divide(2); }},
      {"y.div(2, trunc)", [](X y) { return y.div(2, "trunc"); }},
      {"y.clamp(0, 1)", [](X y) { return y.clamp(0, 1); }},
      {"y.clamp_max(0)", [](X y) { return y.clamp_max(0); }},
      {"threshold(y, 0, 1)", [](X y) { return torch::threshold(y, 0, 1); }},
      {"maximum(y, 1 - y)", [](X y) { return torch::maximum(y, 1 - y); }},
      {"where(y > 0, y, 2)", [](X y) { return torch::where(y > 0, y, 2); }},
      {"y.masked_fill(y > 0, 1)", [](X y) { return y.masked_fill(y > 0, 1); }},
      {"y.eq(1)", [](X y) { return y.eq(1); }},
      {"y > 0.5", [](X y) { return y > 0.5; }},
      {"y.logical_xor(y - 1)", [](X y) { return y.logical_xor(y + y - 2); }},
      {"y.bitwise_not()", [](X y) { return y.bitwise_not(); }},
      {"y.isnan() | y.isinf()", [](X y) { return y.isnan() | y.isinf(); }},
      {"y.sum(-1, true)", [](X y) { return y.sum(-1, true); }},
      {"y.sum() / y.numel()", [](X y) { return y.sum() / y.numel(); }},
      {"y.prod(-1, true)", [](X y) { return y.clamp(-1, 1).prod(-1, true); }},
      {"y.amax(-1, true)", [](X y) { return y.amax(-1, true); }},
      {"y.amin()", [](X y) { return y.amin(); }},
      {"y.any(-1, true)", [](X y) { return y.any(-1, true); }},
      {"y.all()", [](X y) { return y.all(); }},
      {"y.cumsum(-1)", [](X y) { return y.cumsum(-1); }},
      {"get<0>(y.sort(-1))", [](X y) { return std::get<0>(y.sort(-1)); }},
      {"get<0>(y.topk(1, -1))", [](X y) { return std::get<0>(y.topk(1, -1)); }},
      {"get<0>(y.max(-1, true))",
       [](X y) { return std::get<0>(y.max(-1, true)); }},
      {"cat({y, y}, -1).chunk(2, -1)[1]",
       [](X y) {
         return torch::cat({y, y}, -1).chunk(2, -1)[1];
       }},
      {"stack({y, y * 2}, 0).sum(0)",
       [](X y) {
         return torch::stack({y, y * 2}, 0).sum(0);
       }},
      {"y.flip(-1)", [](X y) { return y.flip(-1); }},
      {"y.roll(1, -1)", [](X y) { return y.roll(1, -1); }},
      {"y.tril()", [](X y) { return y.tril(); }},
      {"y.select(-1, 0).unsqueeze(-1)",
       [](X y) { return y.select(-1, 0).unsqueeze(-1); }},
      {"constant_pad_nd(y, {1, -1}, 1)",
       [](X y) {
         return torch::constant_pad_nd(y, {1, -1}, 1);
       }},
      {"zeros_like(y) + full_like(y, 1)",
       [](X y) { return torch::zeros_like(y) + torch::full_like(y, 1); }},
      {"matmul(y, y.mT()).sum(-1, true)",
       [](X y) { return torch::matmul(y, y.mT()).sum(-1, true) * 0.1; }}};
  for (const Plain& kind : kinds) {
    steps["types: " + std::string(kind.text)] =
        [kind](Draw& draw, const Tensor& x) -> Step {
      const auto type = draw.one_of<torch::ScalarType>(
          {torch::kLong,
           torch::kInt,
           torch::kShort,
           torch::kByte,
           torch::kBool,
           torch::kDouble});
      if (!is_float(x) || x.dim() < 2) return std::nullopt;
      return RandomStep{
          fmt::format(
              "y = (x * 3 + 0.17).floor(){}.to(k{}); z = {}; "
              "x + z.to(kFloat) * 0.1",
              type == torch::kByte ? ".abs()" : "",
              torch::toString(type),
              kind.text),
          [=](X t) {
            const Tensor whole = (t * 3 + 0.17).floor();
            const Tensor y =
                (type == torch::kByte ? whole.abs() : whole).to(type);
            return t + kind.run(y).to(torch::kFloat) * 0.1;
          }};
    };
  }
}

inline void add_reductions(Steps& steps) {
  using X = const Tensor&;
  // Some of these keep the dimension, and some are subtracted from x.
  struct Kind {
    const char* name;
    Tensor (*run)(X x, int64_t dim, bool keeps);
  };
  static const std::vector<Kind> kinds = {
      {"sum", [](X x, int64_t d, bool k) { return x.sum(d, k) * 0.2; }},
      {"mean", [](X x, int64_t d, bool k) { return x.mean(d, k); }},
      {"amax", [](X x, int64_t d, bool k) { return x.amax({d}, k); }},
      {"amin", [](X x, int64_t d, bool k) { return x.amin({d}, k); }},
      {"argmax",
       [](X x, int64_t d, bool k) { return x.argmax(d, k).to(torch::kFloat); }},
      {"argmin",
       [](X x, int64_t d, bool k) { return x.argmin(d, k).to(torch::kFloat); }},
      {"max", [](X x, int64_t d, bool k) { return std::get<0>(x.max(d, k)); }},
      {"min", [](X x, int64_t d, bool k) { return std::get<0>(x.min(d, k)); }},
      {"place of max",
       [](X x, int64_t d, bool k) {
         return std::get<1>(x.max(d, k)).to(torch::kFloat);
       }},
      {"all",
       [](X x, int64_t d, bool k) {
         return (x > -0.517).all(d, k).to(torch::kFloat);
       }},
      {"any",
       [](X x, int64_t d, bool k) {
         return (x > 0.517).any(d, k).to(torch::kFloat);
       }},
      {"std_mean",
       [](X x, int64_t d, bool k) {
         const auto [std, mean] =
             torch::std_mean(x, at::IntArrayRef(d), true, k);
         return std + mean * 2;
       }},
      {"var_mean",
       [](X x, int64_t d, bool k) {
         const auto [var, mean] =
             torch::var_mean(x, at::IntArrayRef(d), false, k);
         return var + mean * 2;
       }},
      {"linalg_vector_norm",
       [](X x, int64_t d, bool k) {
         return torch::linalg_vector_norm(x, 3, d, k);
       }},
      {"largest linalg_vector_norm",
       [](X x, int64_t d, bool k) {
         return torch::linalg_vector_norm(x, INFINITY, d, k);
       }},
      {"norm of absolutes",
       [](X x, int64_t d, bool k) { return x.norm(1, d, k); }},
      {"cosine_similarity",
       [](X x, int64_t d, bool k) {
         // For positive numbers: if a sum is 0 up to rounding, its direction is
         // arbitrary.
         const Tensor above = x.sigmoid() + 0.1;
         const Tensor y = torch::cosine_similarity(above, above + 1, d);
         return k ? y.unsqueeze(d) : y;
       }},
      {"std", [](X x, int64_t d, bool k) { return x.std(d, false, k); }},
      {"var", [](X x, int64_t d, bool k) { return x.var(d, true, k); }},
      {"norm", [](X x, int64_t d, bool k) { return x.norm(2, d, k); }},
      {"logsumexp", [](X x, int64_t d, bool k) { return x.logsumexp(d, k); }},
      {"prod", [](X x, int64_t d, bool k) { return x.tanh().prod(d, k); }}};
  for (const Kind& kind : kinds) {
    steps[kind.name] = [kind](Draw& draw, const Tensor& x) -> Step {
      if (!is_float(x) || x.dim() < 2) return std::nullopt;
      const int64_t dim = draw.dim(x);
      const std::string name = kind.name;
      if (x.dim() == 2 || draw.yes()) {
        return RandomStep{
            fmt::format("x - {}(x, {}, true)", name, dim),
            [=](X t) { return t - kind.run(t, dim, true); }};
      }
      return RandomStep{fmt::format("{}(x, {}, false)", name, dim), [=](X t) {
                          return kind.run(t, dim, false);
                        }};
    };
  }
  add_plain(steps, "x - x.mean()", [](X x) { return x - x.mean(); });
  add_plain(steps, "x / (1 + x.abs().sum() / 9)", [](X x) {
    return x / (1 + x.abs().sum() / 9);
  });
  add_plain(steps, "x - x.amax() + x.amin()", [](X x) {
    return x - x.amax() + x.amin();
  });
  steps["several dimensions"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 3) return std::nullopt;
    const int64_t dim = draw.integer(1, x.dim() - 2);
    const std::vector<int64_t> dims = {-1, dim};
    const std::string text = fmt::format("{{-1, {}}}", dim);
    if (draw.yes()) {
      return RandomStep{"x - x.mean(" + text + ", true)", [=](X t) {
                          return t - t.mean(dims, true);
                        }};
    }
    return RandomStep{
        "x + x.amax(" + text + ", true) - x.sum(" + text + ", true) / 20",
        [=](X t) { return t + t.amax(dims, true) - t.sum(dims, true) / 20; }};
  };
  steps["softmax"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    if (draw.yes()) {
      return RandomStep{fmt::format("x.softmax({})", dim), [=](X t) {
                          return t.softmax(dim);
                        }};
    }
    return RandomStep{fmt::format("x.log_softmax({})", dim), [=](X t) {
                        return t.log_softmax(dim);
                      }};
  };
  steps["_softmax"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    if (draw.yes()) {
      return RandomStep{fmt::format("_softmax(x, {}, false)", dim), [=](X t) {
                          return at::_softmax(t, dim, false);
                        }};
    }
    return RandomStep{fmt::format("_log_softmax(x, {}, false)", dim), [=](X t) {
                        return at::_log_softmax(t, dim, false);
                      }};
  };
  steps["pairwise_distance"] = [](Draw& draw, const Tensor& x) -> Step {
    const double p = draw.one_of<double>({1, 2, 3, INFINITY});
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    return RandomStep{
        fmt::format("x - pairwise_distance(x, x.cos(), {}, 1e-6, true)", p),
        [=](X t) {
          return t - torch::pairwise_distance(t, t.cos(), p, 1e-6, true);
        }};
  };
  steps["argsort"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    const bool descends = draw.yes();
    return RandomStep{
        fmt::format("x.cos().gather({0}, x.argsort({0}, {1}))", dim, descends),
        [=](X t) { return t.cos().gather(dim, t.argsort(dim, descends)); }};
  };
  steps["topk"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), k = draw.integer(1, x.size(dim));
    const bool largest = draw.yes();
    return RandomStep{
        fmt::format("get<0>(x.topk({}, {}, {}))", k, dim, largest),
        [=](X t) { return std::get<0>(t.topk(k, dim, largest)); }};
  };
  steps["cumsum"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("x.cumsum({}) * 0.3", dim), [=](X t) {
                        return t.cumsum(dim) * 0.3;
                      }};
  };
  steps["sort"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("get<0>(x.sort({}))", dim), [=](X t) {
                        return std::get<0>(t.sort(dim));
                      }};
  };
}

inline void add_views(Steps& steps) {
  using X = const Tensor&;
  const auto add = [&](const std::string& text, bool (*takes)(X), auto run) {
    steps[text] = [=](Draw&, const Tensor& x) -> Step {
      if (!takes(x)) return std::nullopt;
      return RandomStep{text, run};
    };
  };
  add("x.flatten(1)", is_float, [](X x) { return x.flatten(1); });
  add("x.reshape({x.size(0), -1})", is_float, [](X x) {
    return x.reshape({x.size(0), -1});
  });
  add("x.contiguous().view({-1, x.size(-1)})", is_sequence, [](X x) {
    return x.contiguous().view({-1, x.size(-1)});
  });
  add("x.flatten(2).transpose(1, 2)", is_image, [](X x) {
    return x.flatten(2).transpose(1, 2);
  });
  add("x.mean({2, 3})", is_image, [](X x) { return x.mean({2, 3}); });
  add("x.permute({0, 2, 3, 1})", is_image, [](X x) {
    return x.permute({0, 2, 3, 1});
  });
  add("x.permute({0, -1, 1, 2}).contiguous()", is_image, [](X x) {
    return x.permute({0, -1, 1, 2}).contiguous();
  });
  add("x.transpose(1, -1)", is_sequence, [](X x) {
    return x.transpose(1, -1);
  });
  add("x.mT()", is_sequence, [](X x) { return x.mT(); });
  add("x.t().unsqueeze(0).squeeze(0).t()", is_row, [](X x) {
    return x.t().unsqueeze(0).squeeze(0).t();
  });
  add("x.unsqueeze(1).squeeze(1)", is_float, [](X x) {
    return x.unsqueeze(1).squeeze(1);
  });
  add("x.unsqueeze(-1).expand({-1, -1, 3})", is_row, [](X x) {
    return x.unsqueeze(-1).expand({-1, -1, 3});
  });
  add("x.unsqueeze(1).expand({x.size(0), 2, x.size(1)})", is_row, [](X x) {
    return x.unsqueeze(1).expand({x.size(0), 2, x.size(1)});
  });
  add("x.slice(1, 0, 1).expand_as(x) + x", is_float, [](X x) {
    return x.dim() < 2 ? x : x.slice(1, 0, 1).expand_as(x) + x;
  });
  add("x.repeat({1, 2})", is_row, [](X x) { return x.repeat({1, 2}); });
  add("x.view_as(x.flatten(1)).unflatten(1, {-1, 1})", is_row, [](X x) {
    return x.reshape_as(x.flatten(1)).view_as(x).unflatten(1, {-1, 1});
  });
  add("x.movedim(1, -1)", is_sequence, [](X x) { return x.movedim(1, -1); });
  add("x.reshape({x.size(0) * x.size(1), -1}).view_as(x)",
      is_sequence,
      [](X x) {
        return x.reshape({x.size(0) * x.size(1), -1}).view_as(x);
      });
  add("(x.numpy_T() * 2).numpy_T()", is_row, [](X x) {
    return (x.numpy_T() * 2).numpy_T();
  });
  add("x.sin().ravel().reshape_as(x)", is_float, [](X x) {
    return x.sin().ravel().reshape_as(x);
  });
  steps["tile, repeat_interleave"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    if (draw.yes()) {
      return RandomStep{"x.tile({2})", [](X t) { return t.tile({2}); }};
    }
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("x.repeat_interleave(2, {})", dim), [=](X t) {
                        return t.repeat_interleave(2, dim);
                      }};
  };
  // As in ShuffleNet.
  steps["channel shuffle"] = [](Draw& draw, const Tensor& x) -> Step {
    const int64_t groups = draw.integer(1, 3);
    if (!is_image(x)) return std::nullopt;
    return RandomStep{
        fmt::format("channel shuffle of {} groups", groups),
        [=](X t) {
          const int64_t n = t.size(0), c = t.size(1), h = t.size(2),
                        w = t.size(3);
          return t.reshape({n, groups, c / groups, h, w})
              .transpose(1, 2)
              .reshape({n, c, h, w});
        }};
  };
  // Each window is one row.
  add("windows of 1 by W", is_image, [](X x) {
    const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
    return x.permute({0, 2, 3, 1})
        .reshape({n * h, w, c})
        .mean(1)
        .view({n, h, c});
  });
}

inline void add_parts(Steps& steps) {
  using X = const Tensor&;
  steps["slice"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), size = x.size(dim);
    const int64_t start = draw.integer(-size - 1, size - 1);
    const int64_t step = draw.integer(1, 2);
    return RandomStep{
        fmt::format("x.slice({}, {}, nullopt, {})", dim, start, step),
        [=](X t) { return t.slice(dim, start, std::nullopt, step); }};
  };
  steps["slice to an end"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), size = x.size(dim);
    const int64_t start = draw.integer(-size - 1, size - 1);
    const int64_t end = draw.integer(start + 1, size + 2);
    const int64_t step = draw.integer(1, 2);
    return RandomStep{
        fmt::format("x.slice({}, {}, {}, {})", dim, start, end, step),
        [=](X t) { return t.slice(dim, start, end, step); }};
  };
  steps["slice by size"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{
            fmt::format("x.slice({0}, x.size({0}) / 2)", dim),
            [=](X t) { return t.slice(dim, t.size(dim) / 2); }};
      case 1:
        return RandomStep{
            fmt::format("x.slice({0}, 0, x.size({0}) / 2 + 1)", dim),
            [=](X t) { return t.slice(dim, 0, t.size(dim) / 2 + 1); }};
      default:
        return RandomStep{
            fmt::format("x.slice({0}, 0, x.size({0}), 2)", dim),
            [=](X t) { return t.slice(dim, 0, t.size(dim), 2); }};
    }
  };
  steps["narrow"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), size = x.size(dim);
    const int64_t length = draw.integer(1, size);
    const int64_t start = draw.yes() ? draw.integer(0, size - length) : -length;
    return RandomStep{
        fmt::format("x.narrow({}, {}, {})", dim, start, length),
        [=](X t) { return t.narrow(dim, start, length); }};
  };
  steps["split"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), size = x.size(dim);
    if (size < 2) return std::nullopt;
    const int64_t part = draw.integer(1, size - 1);
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{
            fmt::format(
                "p = x.split({0}, {1}); cat({{p[1], p[0]}}, {1})",
                part,
                dim),
            [=](X t) {
              const auto p = t.split(part, dim);
              return torch::cat({p.at(1), p[0]}, dim);
            }};
      case 1:
        return RandomStep{
            fmt::format(
                "p = x.split_with_sizes({{{0}, {1}}}, {2}); cat({{p[1], "
                "p[0]}}, "
                "{2})",
                part,
                size - part,
                dim),
            [=](X t) {
              const auto p = t.split_with_sizes({part, size - part}, dim);
              return torch::cat({p.at(1), p[0]}, dim);
            }};
      default:
        return RandomStep{
            fmt::format("p = x.chunk(2, {}); p[0].sigmoid() * p[0]", dim),
            [=](X t) {
              const auto p = t.chunk(2, dim);
              return p[0].sigmoid() * p[0];
            }};
    }
  };
  steps["unbind, unsafe parts"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{
            fmt::format(
                "p = x.unbind({0}); stack({{p.back(), p[0]}}, {0})",
                dim),
            [=](X t) {
              const auto p = t.unbind(dim);
              return torch::stack({p.back(), p[0]}, dim);
            }};
      case 1:
        return RandomStep{
            fmt::format("p = x.unsafe_chunk(2, {}); p[0] * p[0].sin()", dim),
            [=](X t) {
              const auto p = t.unsafe_chunk(2, dim);
              return p[0] * p[0].sin();
            }};
      default:
        return RandomStep{
            fmt::format(
                "p = x.unsafe_split(2, {0}); cat({{p.back(), p[0].cos()}}, "
                "{0})",
                dim),
            [=](X t) {
              const auto p = t.unsafe_split(2, dim);
              return torch::cat({p.back(), p[0].cos()}, dim);
            }};
    }
  };
  steps["cat"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("cat({{x, x.sin()}}, {})", dim), [=](X t) {
                        return torch::cat({t, t.sin()}, dim);
                      }};
  };
  steps["cat of float and long"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{
        fmt::format("cat({{x, (x * 3 + 0.17).to(kLong)}}, {})", dim),
        [=](X t) {
          return torch::cat({t, (t * 3 + 0.17).to(torch::kLong)}, dim);
        }};
  };
  steps["stack"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || x.dim() > 3) return std::nullopt;
    const int64_t dim = draw.integer(1, x.dim());
    return RandomStep{fmt::format("stack({{x, x.cos()}}, {})", dim), [=](X t) {
                        return torch::stack({t, t.cos()}, dim);
                      }};
  };
  steps["roll"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x), by = draw.integer(-2, 2);
    return RandomStep{fmt::format("x.roll({}, {})", by, dim), [=](X t) {
                        return t.roll(by, dim);
                      }};
  };
  steps["flip"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("x.flip({})", dim), [=](X t) {
                        return t.flip(dim);
                      }};
  };
  steps["unfold"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || x.dim() > 3) return std::nullopt;
    const int64_t size = draw.integer(1, std::min<int64_t>(3, x.size(-1)));
    const int64_t step = draw.integer(1, 2);
    return RandomStep{
        fmt::format("x.unfold(-1, {}, {})", size, step),
        [=](X t) { return t.unfold(-1, size, step); }};
  };
  steps["constant_pad_nd"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const std::vector<int64_t> pads = {draw.integer(-1, 2), draw.integer(0, 2)};
    const double number = draw.real(-1, 1);
    return RandomStep{
        fmt::format(
            "constant_pad_nd(x, {{{}}}, {})",
            fmt::join(pads, ", "),
            number),
        [=](X t) { return torch::constant_pad_nd(t, pads, number); }};
  };
  steps["reflection_pad2d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const std::vector<int64_t> pads = {
        draw.integer(0, 2),
        draw.integer(0, 1),
        draw.integer(0, 1),
        draw.integer(0, 2)};
    const std::string text = fmt::format("(x, {{{}}})", fmt::join(pads, ", "));
    return RandomStep{"reflection_pad2d" + text, [=](X t) {
                        return torch::reflection_pad2d(t, pads);
                      }};
  };
  steps["replication_pad2d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const std::vector<int64_t> pads = {
        draw.integer(0, 2),
        draw.integer(0, 1),
        draw.integer(0, 1),
        draw.integer(0, 2)};
    return RandomStep{
        fmt::format("replication_pad2d(x, {{{}}})", fmt::join(pads, ", ")),
        [=](X t) { return torch::replication_pad2d(t, pads); }};
  };
  steps["pads of sequences"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const std::vector<int64_t> pads = {draw.integer(0, 2), draw.integer(0, 1)};
    const std::string text = fmt::format("(x, {{{}}})", fmt::join(pads, ", "));
    if (draw.yes()) {
      return RandomStep{"reflection_pad1d" + text, [=](X t) {
                          return torch::reflection_pad1d(t, pads);
                        }};
    }
    return RandomStep{"replication_pad1d" + text, [=](X t) {
                        return torch::replication_pad1d(t, pads);
                      }};
  };
  steps["pads of volumes"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    std::vector<int64_t> pads(6);
    for (int64_t& pad : pads) pad = draw.integer(0, 1);
    const std::string text =
        fmt::format("(volume(x), {{{}}})", fmt::join(pads, ", "));
    if (draw.yes()) {
      return RandomStep{
          "reflection_pad3d" + text,
          [=](X t) { return image(torch::reflection_pad3d(volume(t), pads)); }};
    }
    return RandomStep{"replication_pad3d" + text, [=](X t) {
                        return image(torch::replication_pad3d(volume(t), pads));
                      }};
  };
  steps["pad"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 3) return std::nullopt;
    std::vector<int64_t> pads(2 * (x.dim() - 2));
    for (int64_t& pad : pads) pad = draw.integer(0, 2);
    static const std::vector<std::string> modes = {
        "reflect",
        "replicate",
        "circular",
        "constant"};  // in the order of ATen's enum
    const int64_t k = draw.integer(0, 3);
    const std::string text = fmt::format("(x, {{{}}}, ", fmt::join(pads, ", "));
    const auto number = k == 3 ? std::optional(0.5) : std::nullopt;
    if (draw.yes()) {
      return RandomStep{
          fmt::format("pad{}{}, {})", text, modes[k], number.value_or(0)),
          [=](X t) { return torch::pad(t, pads, modes[k], number); }};
    }
    return RandomStep{
        fmt::format("_pad_enum{}{}, {})", text, modes[k], number.value_or(0)),
        [=](X t) { return torch::_pad_enum(t, pads, k, number); }};
  };
  steps["tril, triu"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const int64_t k = draw.integer(-1, 1);
    return RandomStep{fmt::format("x.tril({0}) - x.triu({0})", k), [=](X t) {
                        return t.tril(k) - t.triu(k);
                      }};
  };
}

inline void add_new(Steps& steps) {
  using X = const Tensor&;
  add_table(
      steps,
      {{"x + ones({x.size(-1)})",
        [](X x) { return x + torch::ones({x.size(-1)}, x.options()); }},
       {"x + full({x.size(-1)}, 0.25)",
        [](X x) { return x + torch::full({x.size(-1)}, 0.25, x.options()); }},
       {"x + empty({x.size(-1)}).fill_(0.5)",
        [](X x) {
          return x + torch::empty({x.size(-1)}, x.options()).fill_(0.5);
        }},
       {"x + x.new_empty({x.size(-1)}).zero_()",
        [](X x) { return x + x.new_empty({x.size(-1)}).zero_(); }},
       {"x + x.new_full({x.size(-1)}, 0.75)",
        [](X x) { return x + x.new_full({x.size(-1)}, 0.75); }}});
  add_plain(steps, "x + zeros_like(x) + ones_like(x)", [](X x) {
    return x + torch::zeros_like(x) + torch::ones_like(x);
  });
  add_plain(steps, "x + empty_like(x).fill_(0.25)", [](X x) {
    return x + torch::empty_like(x).fill_(0.25);
  });
  add_plain(steps, "x * x.new_ones({x.size(0)}).sum() / x.size(0)", [](X x) {
    return x * x.new_ones({x.size(0)}).sum() / x.size(0);
  });
  add_plain(steps, "x + x.new_zeros({x.size(-1)})", [](X x) {
    return x + x.new_zeros({x.size(-1)});
  });
  add_plain(steps, "x + full_like(x, 0.5)", [](X x) {
    return x + torch::full_like(x, 0.5);
  });
  steps["cat({zeros({x.size(0), 2}), x}, 1)"] = [](Draw&,
                                                   const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    return RandomStep{
        "cat({zeros({x.size(0), 2}), x}, 1)",
        [](X t) {
          return torch::cat({torch::zeros({t.size(0), 2}, t.options()), t}, 1);
        }};
  };
  steps["class token"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const Tensor token = draw.weight({1, 1, x.size(2)});
    return RandomStep{
        "cat({token.expand({x.size(0), -1, -1}), x}, 1)",
        [=](X t) {
          return torch::cat({token.expand({t.size(0), -1, -1}), t}, 1);
        }};
  };
  steps["positions"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{
            "x + arange(x.size(1)).view({1, -1, 1})",
            [](X t) {
              return t + torch::arange(t.size(1)).view({1, -1, 1});
            }};
      case 1:
        return RandomStep{"x + arange(x.size(2), kFloat)", [](X t) {
                            return t + torch::arange(t.size(2), torch::kFloat);
                          }};
      default: {
        const Tensor table = draw.weight({64, x.size(2)});
        return RandomStep{
            "x + embedding(table [64, C], arange(x.size(1)))",
            [=](X t) {
              return t + torch::embedding(table, torch::arange(t.size(1)));
            }};
      }
    }
  };
  steps["arange of the batch"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    return RandomStep{"x + arange(x.size(0)).unsqueeze(1)", [](X t) {
                        return t + torch::arange(t.size(0)).unsqueeze(1);
                      }};
  };
}

inline void add_places(Steps& steps) {
  using X = const Tensor&;
  steps["select"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 3) return std::nullopt;
    const int64_t dim = draw.dim(x), size = x.size(dim);
    const int64_t i = draw.integer(-size, size - 1);
    return RandomStep{fmt::format("x.select({}, {})", dim, i), [=](X t) {
                        return t.select(dim, i);
                      }};
  };
  steps["index_select"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    const Tensor places =
        draw.buffer(torch::randint(x.size(dim), {3}, torch::kLong));
    return RandomStep{
        fmt::format("x.index_select({}, places [3])", dim),
        [=](X t) { return t.index_select(dim, places); }};
  };
  steps["gather"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{
        fmt::format("x.gather({0}, x.argmax({0}, true))", dim),
        [=](X t) { return t.gather(dim, t.argmax(dim, true)); }};
  };
  steps["gather of topk"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || x.size(-1) < 2) return std::nullopt;
    return RandomStep{"x.sin().gather(-1, get<1>(x.topk(2, -1)))", [](X t) {
                        return t.sin().gather(-1, std::get<1>(t.topk(2, -1)));
                      }};
  };
  steps["scatter"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    if (draw.yes()) {
      return RandomStep{
          fmt::format("x.scatter({0}, x.argmax({0}, true), 0.5)", dim),
          [=](X t) { return t.scatter(dim, t.argmax(dim, true), 0.5); }};
    }
    return RandomStep{
        fmt::format(
            "x.scatter({0}, x.argmax({0}, true), x.mean({0}, true))",
            dim),
        [=](X t) {
          return t.scatter(dim, t.argmax(dim, true), t.mean(dim, true));
        }};
  };
  steps["scatter_add"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{
        fmt::format(
            "x.scatter_add({0}, x.argmax({0}, true), x.mean({0}, true))",
            dim),
        [=](X t) {
          return t.scatter_add(dim, t.argmax(dim, true), t.mean(dim, true));
        }};
  };
  steps["embedding"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    const Tensor table = draw.weight({10, draw.integer(2, 6)});
    return RandomStep{
        "embedding(table [10, C], (x.abs() * 3 + 0.17).clamp(0, 9).to(kLong))",
        [=](X t) {
          return torch::embedding(
              table,
              (t.abs() * 3 + 0.17).clamp(0, 9).to(torch::kLong));
        }};
  };
  steps["index"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const Tensor column = draw.buffer(torch::tensor({0, -1}));
    if (draw.yes()) {
      return RandomStep{"x.index({(x.sum() > 0.017).to(kLong) * 0})", [](X t) {
                          const Tensor first =
                              (t.sum() > 0.017).to(torch::kLong) * 0;
                          return t + t.index({first});
                        }};
    }
    return RandomStep{
        "x + x.transpose(0, 1).index({{0, -1}}).mean(0).unsqueeze(1)",
        [=](X t) {
          return t + t.transpose(0, 1).index({column}).mean(0).unsqueeze(1);
        }};
  };
  steps["index by a mask"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_float(x)) return std::nullopt;
    return RandomStep{"x + x.index({x > 0.017}).sum() * 0.01", [](X t) {
                        return t + t.index({t > 0.017}).sum() * 0.01;
                      }};
  };
  steps["index_put"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const Tensor column = draw.buffer(torch::tensor({0, -1}));
    return RandomStep{
        "x.transpose(0, 1).index_put({{0, -1}}, x.mean()).transpose(0, 1)",
        [=](X t) {
          return t.transpose(0, 1)
              .index_put({column}, t.mean())
              .transpose(0, 1);
        }};
  };
  steps["nonzero"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_float(x)) return std::nullopt;
    return RandomStep{"x + (x > 0.017).nonzero().sum() * 0.001", [](X t) {
                        return t +
                               (t > 0.017).nonzero().sum().to(torch::kFloat) *
                                   0.001;
                      }};
  };
  steps["one_hot"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    return RandomStep{
        "cat({x, one_hot(x.argmax(1), 9).to(kFloat)}, 1)",
        [](X t) {
          return torch::cat(
              {t, torch::one_hot(t.argmax(1), 64).to(torch::kFloat)},
              1);
        }};
  };
}

inline void add_convolutions(Steps& steps) {
  using X = const Tensor&;
  steps["Conv2d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t groups = x.size(1) % 2 == 0 && draw.yes() ? 2 : 1;
    auto options = torch::nn::Conv2dOptions(
                       x.size(1),
                       2 * draw.integer(1, 3),
                       {draw.integer(1, 3), draw.integer(1, 3)})
                       .groups(groups)
                       .stride({draw.integer(1, 2), draw.integer(1, 2)})
                       .padding(draw.integer(0, 1))
                       .dilation(draw.integer(1, 2))
                       .bias(draw.yes());
    const auto conv = draw.layer(torch::nn::Conv2d(options));
    return RandomStep{
        c10::str("Conv2d: ", c10::str(*conv), "(x)"),
        [=](X t) mutable { return torch::nn::Conv2d(conv)->forward(t); }};
  };
  steps["Conv2d and BatchNorm2d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const auto conv = draw.layer(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(x.size(1), 4, 3).padding(1).bias(draw.yes())));
    const auto norm = draw.layer(torch::nn::BatchNorm2d(4));
    norm->running_mean.normal_(0, 0.3);
    norm->running_var.uniform_(0.5, 1.5);
    return RandomStep{
        "BatchNorm2d(4)(Conv2d(C, 4, 3, padding 1)(x))",
        [=](X t) {
          return torch::nn::BatchNorm2d(norm)->forward(
              torch::nn::Conv2d(conv)->forward(t));
        }};
  };
  steps["ConvTranspose2d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t stride = draw.integer(1, 2);
    auto options = torch::nn::ConvTranspose2dOptions(
                       x.size(1),
                       draw.integer(1, 4),
                       draw.integer(2, 3))
                       .stride(stride)
                       .padding(draw.integer(0, 1))
                       .output_padding(stride - 1);
    const auto conv = draw.layer(torch::nn::ConvTranspose2d(options));
    return RandomStep{c10::str(*conv, "(x)"), [=](X t) {
                        return torch::nn::ConvTranspose2d(conv)->forward(t);
                      }};
  };
  steps["Conv1d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const auto conv = draw.layer(torch::nn::Conv1d(
        torch::nn::Conv1dOptions(x.size(2), draw.integer(1, 5), 3)
            .padding(draw.integer(0, 2))
            .stride(draw.integer(1, 2))));
    return RandomStep{c10::str(*conv, "(x.mT()).mT()"), [=](X t) {
                        return torch::nn::Conv1d(conv)->forward(t.mT()).mT();
                      }};
  };
  for (const bool ceil : {false, true}) {
    steps[ceil ? "pools with ceil_mode" : "pools"] =
        [ceil](Draw& draw, const Tensor& x) -> Step {
      if (!is_image(x)) return std::nullopt;
      const int64_t kernel = draw.integer(1, 3), stride = draw.integer(1, 3);
      const int64_t padding = draw.integer(0, kernel / 2);
      const std::string text =
          fmt::format("(x, {}, {}, {}", kernel, stride, padding);
      if (draw.yes()) {
        const int64_t dilation = draw.integer(1, 2);
        return RandomStep{
            fmt::format("max_pool2d{}, {}, {})", text, dilation, ceil),
            [=](X t) {
              return torch::max_pool2d(
                  t,
                  kernel,
                  stride,
                  padding,
                  dilation,
                  ceil);
            }};
      }
      const bool counts_padding = draw.yes();
      return RandomStep{
          fmt::format("avg_pool2d{}, {}, {})", text, ceil, counts_padding),
          [=](X t) {
            return torch::avg_pool2d(
                t,
                kernel,
                stride,
                padding,
                ceil,
                counts_padding);
          }};
    };
  }
  steps["pools of sequences"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const int64_t kernel = draw.integer(1, 2);
    if (draw.yes()) {
      return RandomStep{fmt::format("max_pool1d(x, {})", kernel), [=](X t) {
                          return torch::max_pool1d(t, kernel);
                        }};
    }
    return RandomStep{fmt::format("avg_pool1d(x, {})", kernel), [=](X t) {
                        return torch::avg_pool1d(t, kernel);
                      }};
  };
  steps["global pools"] = [](Draw& draw, const Tensor& x) -> Step {
    if (is_sequence(x)) {
      return RandomStep{"x * adaptive_avg_pool1d(x, 1)", [](X t) {
                          return t * torch::adaptive_avg_pool1d(t, 1);
                        }};
    }
    if (!is_image(x)) return std::nullopt;
    if (draw.yes()) {
      return RandomStep{
          "x * adaptive_avg_pool2d(x, 1).sigmoid()",
          [](X t) {
            return t * torch::adaptive_avg_pool2d(t, {1, 1}).sigmoid();
          }};
    }
    return RandomStep{
        "x - get<0>(adaptive_max_pool2d(x, 1))",
        [](X t) {
          return t - std::get<0>(torch::adaptive_max_pool2d(t, {1, 1}));
        }};
  };
  steps["adaptive pools"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t h = draw.integer(1, 4), w = draw.integer(1, 4);
    return RandomStep{
        fmt::format("adaptive_avg_pool2d(x, {{{}, {}}})", h, w),
        [=](X t) {
          return torch::adaptive_avg_pool2d(t, {h, w});
        }};
  };
  add_table(
      steps,
      {{"get<0>(max_pool2d_with_indices(x, 2, 1))",
        [](X x) {
          return std::get<0>(torch::max_pool2d_with_indices(x, 2, 1));
        },
        is_image},
       {"x - get<0>(adaptive_max_pool1d(x, 1))",
        [](X x) { return x - std::get<0>(torch::adaptive_max_pool1d(x, 1)); },
        is_sequence},
       {"image(adaptive_avg_pool3d(volume(x), {2, 2, 3}))",
        [](X x) {
          return image(torch::adaptive_avg_pool3d(volume(x), {2, 2, 3}));
        },
        is_image},
       {"image(volume(x) * adaptive_avg_pool3d(volume(x), 1))",
        [](X x) {
          const Tensor y = volume(x);
          return image(y * torch::adaptive_avg_pool3d(y, {1, 1, 1}));
        },
        is_image},
       {"image(volume(x) - get<0>(adaptive_max_pool3d(volume(x), 1)))",
        [](X x) {
          const Tensor y = volume(x);
          return image(
              y - std::get<0>(torch::adaptive_max_pool3d(y, {1, 1, 1})));
        },
        is_image}});
  steps["pools of volumes"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t kernel = draw.integer(1, 3), stride = draw.integer(1, 2);
    const int64_t padding = draw.integer(0, kernel / 2);
    const bool is_ceil = draw.yes();
    const std::string text =
        fmt::format("(volume(x), {}, {}, {}", kernel, stride, padding);
    if (draw.yes()) {
      return RandomStep{
          fmt::format("max_pool3d{}, 1, {})", text, is_ceil),
          [=](X t) {
            return image(torch::max_pool3d(
                volume(t),
                kernel,
                stride,
                padding,
                /*dilation=*/1,
                is_ceil));
          }};
    }
    return RandomStep{
        fmt::format("avg_pool3d{}, {}, {})", text, is_ceil, true),
        [=](X t) {
          return image(torch::avg_pool3d(
              volume(t),
              kernel,
              stride,
              padding,
              is_ceil,
              /*count_include_pad=*/true));
        }};
  };
  steps["adaptive pools of sequences"] = [](Draw& draw,
                                            const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const int64_t size = draw.integer(1, 3);
    if (draw.yes()) {
      return RandomStep{
          fmt::format("adaptive_avg_pool1d(x, {})", size),
          [=](X t) { return torch::adaptive_avg_pool1d(t, size); }};
    }
    return RandomStep{
        fmt::format("get<0>(adaptive_max_pool1d(x, {}))", size),
        [=](X t) { return std::get<0>(torch::adaptive_max_pool1d(t, size)); }};
  };
  steps["conv2d, same"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const Tensor w = draw.weight(
        {3, x.size(1), draw.integer(1, 4), draw.integer(1, 3)},
        0.3);
    const int64_t dilation = draw.integer(1, 2);
    return RandomStep{
        c10::str(
            "conv2d(x, weight ",
            w.sizes(),
            ", {}, 1, same, ",
            dilation,
            ")"),
        [=](X t) { return torch::conv2d(t, w, {}, 1, "same", dilation); }};
  };
  steps["conv of volumes"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const Tensor w = draw.weight({2, x.size(1), 2, 3, 1}, 0.3);
    const Tensor v = draw.weight({x.size(1), 2, 2, 1, 3}, 0.3);
    if (draw.yes()) {
      return RandomStep{"conv3d(volume(x), weight [2, C, 2, 3, 1])", [=](X t) {
                          return image(torch::conv3d(volume(t), w));
                        }};
    }
    return RandomStep{
        "conv_transpose3d(volume(x), weight [C, 2, 2, 1, 3])",
        [=](X t) { return image(torch::conv_transpose3d(volume(t), v)); }};
  };
  steps["ConvTranspose1d"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const int64_t stride = draw.integer(1, 2);
    const auto conv = draw.layer(torch::nn::ConvTranspose1d(
        torch::nn::ConvTranspose1dOptions(x.size(1), draw.integer(1, 4), 2)
            .stride(stride)));
    return RandomStep{c10::str(*conv, "(x)"), [=](X t) {
                        return torch::nn::ConvTranspose1d(conv)->forward(t);
                      }};
  };
  steps["im2col"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t h = draw.integer(1, 3), w = draw.integer(1, 3),
                  dilation = draw.integer(1, 2), padding = draw.integer(0, 1),
                  stride = draw.integer(1, 2);
    return RandomStep{
        fmt::format(
            "im2col(x, {{{}, {}}}, {}, {}, {})",
            h,
            w,
            dilation,
            padding,
            stride),
        [=](X t) {
          const std::vector<int64_t> d(2, dilation), p(2, padding),
              s(2, stride);
          return torch::im2col(t, {h, w}, d, p, s);
        }};
  };
  steps["channel_shuffle"] = [](Draw& draw, const Tensor& x) -> Step {
    const int64_t groups = draw.integer(1, 3);
    if (!is_image(x) || x.size(1) % groups != 0) return std::nullopt;
    return RandomStep{fmt::format("channel_shuffle(x, {})", groups), [=](X t) {
                        return torch::channel_shuffle(t, groups);
                      }};
  };
  steps["pixel_shuffle"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    return RandomStep{"pixel_shuffle(cat({x, x, x, x}, 1), 2)", [](X t) {
                        return torch::pixel_shuffle(
                            torch::cat({t, t.sin(), t.cos(), t}, 1),
                            2);
                      }};
  };
  steps["pixel_unshuffle"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    return RandomStep{"pixel_unshuffle(x, 2)", [](X t) {
                        return torch::pixel_unshuffle(t, 2);
                      }};
  };
}

inline void add_resizing(Steps& steps) {
  using X = const Tensor&;
  using Scales = std::vector<double>;
  struct Kind {
    const char* name;
    Tensor (*to_size)(X x, at::IntArrayRef size);
    Tensor (*by)(X x, const Scales& scales);
  };
  static const std::vector<Kind> kinds = {
      {"upsample_nearest2d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_nearest2d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::upsample_nearest2d(x, std::nullopt, s);
       }},
      {"upsample_bilinear2d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_bilinear2d(x, size, false);
       },
       [](X x, const Scales& s) {
         return torch::upsample_bilinear2d(x, std::nullopt, false, s);
       }},
      {"upsample_bilinear2d, align_corners",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_bilinear2d(x, size, true);
       },
       [](X x, const Scales& s) {
         return torch::upsample_bilinear2d(x, std::nullopt, true, s);
       }},
      {"upsample_bicubic2d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_bicubic2d(x, size, false);
       },
       [](X x, const Scales& s) {
         return torch::upsample_bicubic2d(x, std::nullopt, false, s);
       }},
      {"_upsample_nearest_exact2d",
       [](X x, at::IntArrayRef size) {
         return torch::_upsample_nearest_exact2d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::_upsample_nearest_exact2d(x, std::nullopt, s);
       }}};
  for (const Kind& kind : kinds) {
    const std::string name = kind.name;
    steps[name] = [=](Draw& draw, const Tensor& x) -> Step {
      if (!is_image(x)) return std::nullopt;
      const int64_t h = draw.integer(2, 13), w = draw.integer(2, 13);
      if (draw.yes()) {
        return RandomStep{
            fmt::format("{}(x, {{{}, {}}})", name, h, w),
            [=](X t) {
              return kind.to_size(t, {h, w});
            }};
      }
      if (draw.yes()) {
        return RandomStep{name + "(x, {x.size(2) * 2, x.size(3)})", [=](X t) {
                            return kind.to_size(t, {t.size(2) * 2, t.size(3)});
                          }};
      }
      const int64_t by_h = draw.integer(1, 3), by_w = draw.integer(1, 2);
      return RandomStep{
          fmt::format("{}(x, scales {}, {})", name, by_h, by_w),
          [=](X t) {
            return kind.by(
                t,
                {static_cast<double>(by_h), static_cast<double>(by_w)});
          }};
    };
  }
  // For sequences [N, C, L], and for images as volumes.
  static const std::vector<Kind> others = {
      {"upsample_nearest1d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_nearest1d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::upsample_nearest1d(x, std::nullopt, s);
       }},
      {"_upsample_nearest_exact1d",
       [](X x, at::IntArrayRef size) {
         return torch::_upsample_nearest_exact1d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::_upsample_nearest_exact1d(x, std::nullopt, s);
       }},
      {"upsample_linear1d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_linear1d(x, size, false);
       },
       [](X x, const Scales& s) {
         return torch::upsample_linear1d(x, std::nullopt, false, s);
       }},
      {"upsample_nearest3d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_nearest3d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::upsample_nearest3d(x, std::nullopt, s);
       }},
      {"_upsample_nearest_exact3d",
       [](X x, at::IntArrayRef size) {
         return torch::_upsample_nearest_exact3d(x, size);
       },
       [](X x, const Scales& s) {
         return torch::_upsample_nearest_exact3d(x, std::nullopt, s);
       }},
      {"upsample_trilinear3d",
       [](X x, at::IntArrayRef size) {
         return torch::upsample_trilinear3d(x, size, true);
       },
       [](X x, const Scales& s) {
         return torch::upsample_trilinear3d(x, std::nullopt, false, s);
       }}};
  for (const Kind& kind : others) {
    const std::string name = kind.name;
    const bool is_volume = name.ends_with("3d");
    steps[name] = [=](Draw& draw, const Tensor& x) -> Step {
      if (!(is_volume ? is_image(x) : is_sequence(x))) return std::nullopt;
      const auto of_volume = [=](X t, auto run) {
        return is_volume ? image(run(volume(t))) : run(t);
      };
      const size_t rank = is_volume ? 3 : 1;
      if (draw.yes()) {
        std::vector<int64_t> size(rank);
        for (int64_t& side : size) side = draw.integer(2, 9);
        return RandomStep{
            fmt::format("{}(x, {{{}}})", name, fmt::join(size, ", ")),
            [=](X t) {
              return of_volume(t, [&](X v) { return kind.to_size(v, size); });
            }};
      }
      Scales scales(rank);
      for (double& scale : scales) scale = draw.one_of<double>({1, 1.5, 2, 3});
      return RandomStep{
          fmt::format("{}(x, scales {})", name, fmt::join(scales, ", ")),
          [=](X t) {
            return of_volume(t, [&](X v) { return kind.by(v, scales); });
          }};
    };
  }
  steps["grid_sampler"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    const int64_t mode = draw.integer(0, 2), padding = draw.integer(0, 2);
    const bool aligns = draw.yes();
    return RandomStep{
        fmt::format(
            "c = x.select(1, 0); grid_sampler(x, stack({{c.sin(), c.cos() * "
            "1.2}}, 3), {}, {}, {})",
            mode,
            padding,
            aligns),
        [=](X t) {
          const Tensor c = t.select(1, 0);
          const Tensor grid = torch::stack({c.sin(), c.cos() * 1.2}, 3);
          return torch::grid_sampler(t, grid, mode, padding, aligns);
        }};
  };
  steps["resize back"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_image(x)) return std::nullopt;
    return RandomStep{
        "x + upsample_bilinear2d(avg_pool2d(x, 2), x's size)",
        [](X t) {
          return t + torch::upsample_bilinear2d(
                         torch::avg_pool2d(t, 2),
                         {t.size(2), t.size(3)},
                         false);
        }};
  };
}

inline void add_products(Steps& steps) {
  using X = const Tensor&;
  add_table(
      steps,
      {{"x + x.flatten().dot(x.cos().flatten()) / x.numel()",
        [](X x) { return x + x.flatten().dot(x.cos().flatten()) / x.numel(); }},
       {"x + outer(x.select(1, 0), x.select(1, 1)).mean()",
        [](X x) {
          return x + torch::outer(x.select(1, 0), x.select(1, 1)).mean();
        },
        is_row}});
  steps["mv, outer"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    const Tensor w = draw.weight({x.size(1)}, 0.5);
    if (draw.yes()) {
      return RandomStep{"x + x.mv(weight [C]).unsqueeze(1)", [=](X t) {
                          return t + t.mv(w).unsqueeze(1);
                        }};
    }
    return RandomStep{"x + outer(x.select(1, 0), weight [C])", [=](X t) {
                        return t + torch::outer(t.select(1, 0), w);
                      }};
  };
  steps["bilinear"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t c = x.size(-1);
    const Tensor w = draw.weight({3, c, c}, 0.2), b = draw.weight({3});
    return RandomStep{"bilinear(x, x.sin(), weight [3, C, C], bias)", [=](X t) {
                        return torch::bilinear(t, t.sin(), w, b);
                      }};
  };
  steps["Linear"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const auto linear = draw.layer(torch::nn::Linear(
        torch::nn::LinearOptions(x.size(-1), draw.integer(1, 6))
            .bias(draw.yes())));
    return RandomStep{c10::str(*linear, "(x)"), [=](X t) {
                        return torch::nn::Linear(linear)->forward(t);
                      }};
  };
  steps["linear"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const Tensor w = draw.weight({3, x.size(-1)}), b = draw.weight({3});
    return RandomStep{"linear(x, weight [3, C], bias [3])", [=](X t) {
                        return torch::linear(t, w, b);
                      }};
  };
  steps["addmm, mm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    const Tensor w = draw.weight({x.size(1), 5}, 0.5), b = draw.weight({5});
    if (draw.yes()) {
      return RandomStep{"addmm(bias [5], x, weight [C, 5])", [=](X t) {
                          return torch::addmm(b, t, w);
                        }};
    }
    return RandomStep{"x.mm(weight [C, 5])", [=](X t) {
                        return torch::mm(t, w);
                      }};
  };
  add_plain(steps, "matmul(x, x.mT()) * 0.2", [](X x) {
    return x.dim() < 2 ? x : torch::matmul(x, x.mT()) * 0.2;
  });
  steps["bmm"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    return RandomStep{"x.bmm(x.transpose(1, 2)) * 0.3", [](X t) {
                        return t.bmm(t.transpose(1, 2)) * 0.3;
                      }};
  };
  steps["baddbmm"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    return RandomStep{"baddbmm(x, x.bmm(x.mT()), x, 0.5, 0.1)", [](X t) {
                        return torch::baddbmm(t, t.bmm(t.mT()), t, 0.5, 0.1);
                      }};
  };
  steps["einsum"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const Tensor w = draw.weight({x.size(2), 4}, 0.5);
    return RandomStep{"einsum(\"ntc,cd->ntd\", {x, weight [C, 4]})", [=](X t) {
                        return torch::einsum("ntc,cd->ntd", {t, w});
                      }};
  };
}

inline void add_norms(Steps& steps) {
  using X = const Tensor&;
  steps["layer_norm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || !is_varied(x)) return std::nullopt;
    const int64_t size = x.size(-1);
    const Tensor weight = draw.weight({size}), bias = draw.weight({size});
    switch (draw.integer(0, 2)) {
      case 0:
        return RandomStep{
            fmt::format("layer_norm(x, {{{}}}, weight, bias)", size),
            [=](X t) { return torch::layer_norm(t, {size}, weight, bias); }};
      case 1:
        return RandomStep{
            fmt::format("layer_norm(x, {{{}}}, weight)", size),
            [=](X t) { return torch::layer_norm(t, {size}, weight); }};
      default:
        return RandomStep{fmt::format("layer_norm(x, {{{}}})", size), [=](X t) {
                            return torch::layer_norm(t, {size});
                          }};
    }
  };
  steps["rms_norm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || !is_varied(x)) return std::nullopt;
    const int64_t size = x.size(-1);
    const Tensor weight = draw.yes() ? draw.weight({size}) : Tensor();
    const auto eps = draw.yes() ? std::optional(1e-3) : std::nullopt;
    return RandomStep{
        fmt::format(
            "rms_norm(x, {{{}}}, {}, {})",
            size,
            weight.defined() ? "weight" : "nullopt",
            eps ? "1e-3" : "nullopt"),
        [=](X t) { return torch::rms_norm(t, {size}, weight, eps); }};
  };
  steps["BatchNorm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2) return std::nullopt;
    const int64_t c = x.size(1);
    const Tensor mean = draw.buffer(torch::randn({c}) * 0.3),
                 var = draw.buffer(torch::rand({c}) + 0.5);
    const bool has_weights = draw.yes();
    const Tensor weight = has_weights ? draw.weight({c}) : Tensor(),
                 bias = has_weights ? draw.weight({c}) : Tensor();
    return RandomStep{
        fmt::format("batch_norm(x{})", has_weights ? ", weights" : ""),
        [=](X t) {
          return torch::batch_norm(
              t,
              weight,
              bias,
              mean,
              var,
              /*training=*/false,
              0.1,
              1e-5,
              false);
        }};
  };
  steps["batch_norm of the batch"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_image(x) || !is_varied(x)) return std::nullopt;
    return RandomStep{
        "batch_norm(x, {}, {}, {}, {}, training, 0.1, 1e-5, false)",
        [](X t) {
          return torch::batch_norm(
              t,
              {},
              {},
              {},
              {},
              /*training=*/true,
              0.1,
              1e-5,
              false);
        }};
  };
  steps["group_norm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x) || !is_varied(x)) return std::nullopt;
    const int64_t c = x.size(1), groups = c % 2 == 0 ? 2 : 1;
    const bool has_weights = draw.yes();
    const Tensor weight = has_weights ? draw.weight({c}) : Tensor(),
                 bias = has_weights ? draw.weight({c}) : Tensor();
    return RandomStep{
        fmt::format(
            "group_norm(x, {}{})",
            groups,
            has_weights ? ", weight, bias" : ""),
        [=](X t) { return torch::group_norm(t, groups, weight, bias); }};
  };
  steps["instance_norm"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_image(x) || !is_varied(x)) return std::nullopt;
    const auto norm = draw.layer(torch::nn::InstanceNorm2d(
        torch::nn::InstanceNorm2dOptions(x.size(1)).affine(draw.yes())));
    return RandomStep{c10::str(*norm, "(x)"), [=](X t) {
                        return torch::nn::InstanceNorm2d(norm)->forward(t);
                      }};
  };
  steps["normalize"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_float(x) || x.dim() < 2 || !is_varied(x)) return std::nullopt;
    const int64_t dim = draw.dim(x);
    return RandomStep{fmt::format("normalize(x, {})", dim), [=](X t) {
                        return torch::nn::functional::normalize(
                            t,
                            torch::nn::functional::NormalizeFuncOptions().dim(
                                dim));
                      }};
  };
}

inline void add_attention(Steps& steps) {
  using X = const Tensor&;
  steps["attention"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const Tensor w = draw.weight({x.size(2), x.size(2)}, 0.5);
    const auto heads = [](X t) { return t.unsqueeze(1); };
    switch (draw.integer(0, 4)) {
      case 0:
        return RandomStep{
            "scaled_dot_product_attention(x @ weight, x, x)",
            [=](X t) {
              return torch::scaled_dot_product_attention(
                  torch::matmul(t, w),
                  t,
                  t);
            }};
      case 1:
        return RandomStep{
            "scaled_dot_product_attention(x, x, x, x.bmm(x.mT()) > 0)",
            [=](X t) {
              const Tensor mask = t.bmm(t.mT()) > -1;
              return torch::scaled_dot_product_attention(t, t, t, mask);
            }};
      case 2:
        return RandomStep{
            "scaled_dot_product_attention(x, x, x, x.bmm(x.mT()).sin())",
            [=](X t) {
              const Tensor mask = t.bmm(t.mT()).sin();
              return torch::scaled_dot_product_attention(t, t, t, mask);
            }};
      case 3:
        return RandomStep{
            "scaled_dot_product_attention([N, 1, T, C] of x, scale 0.3)",
            [=](X t) {
              return torch::scaled_dot_product_attention(
                         heads(t),
                         heads(torch::matmul(t, w)),
                         heads(t),
                         std::nullopt,
                         0.0,
                         false,
                         0.3)
                  .squeeze(1);
            }};
      default:
        return RandomStep{
            "scaled_dot_product_attention(x, x, x, is_causal)",
            [=](X t) {
              return torch::scaled_dot_product_attention(
                  t,
                  t,
                  t,
                  std::nullopt,
                  0.0,
                  /*is_causal=*/true);
            }};
    }
  };
  steps["attention with rows that are masked"] = [](Draw&,
                                                    const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    return RandomStep{
        "scaled_dot_product_attention(x, x, x, (x.amax(2, true) > "
        "1).expand(T))",
        [](X t) {
          const Tensor rows =
              (t.amax({2}, true) > 0.5).expand({-1, -1, t.size(1)});
          return torch::scaled_dot_product_attention(t, t, t, rows);
        }};
  };
  steps["attention by hand"] = [](Draw&, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    return RandomStep{
        "softmax(x @ x.mT() / sqrt(C) + masked_fill(...)) @ x",
        [](X t) {
          const Tensor scores = torch::matmul(t, t.mT()) /
                                std::sqrt(static_cast<double>(t.size(2)));
          const Tensor mask = scores < -2;
          return torch::matmul(scores.masked_fill(mask, -1e9).softmax(-1), t);
        }};
  };
  steps["MultiheadAttention"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x) || x.size(2) % 2 != 0) return std::nullopt;
    const auto layer = draw.layer(torch::nn::MultiheadAttention(x.size(2), 2));
    return RandomStep{
        "MultiheadAttention(C, 2)(x, x, x) of [T, N, C]",
        [=](X t) {
          const Tensor y = t.transpose(0, 1);
          return std::get<0>(
                     torch::nn::MultiheadAttention(layer)->forward(y, y, y))
              .transpose(0, 1);
        }};
  };
  steps["TransformerEncoderLayer"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x) || x.size(2) % 2 != 0 || !is_varied(x))
      return std::nullopt;
    const auto layer = draw.layer(torch::nn::TransformerEncoderLayer(
        torch::nn::TransformerEncoderLayerOptions(x.size(2), 2)
            .dim_feedforward(6)));
    return RandomStep{
        "TransformerEncoderLayer(C, 2, dim_feedforward 6) of [T, N, C]",
        [=](X t) {
          return torch::nn::TransformerEncoderLayer(layer)
              ->forward(t.transpose(0, 1))
              .transpose(0, 1);
        }};
  };
}

inline void add_recurrent_layers(Steps& steps) {
  using X = const Tensor&;
  steps["cells"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_row(x)) return std::nullopt;
    switch (draw.integer(0, 2)) {
      case 0: {
        const auto cell = draw.layer(torch::nn::LSTMCell(x.size(1), 3));
        return RandomStep{"h, c = LSTMCell(C, 3)(x); h + c", [=](X t) {
                            const auto [h, c] =
                                torch::nn::LSTMCell(cell)->forward(t);
                            return h + c;
                          }};
      }
      case 1: {
        const auto cell = draw.layer(torch::nn::GRUCell(x.size(1), 3));
        return RandomStep{"GRUCell(C, 3)(x)", [=](X t) {
                            return torch::nn::GRUCell(cell)->forward(t);
                          }};
      }
      default: {
        const auto cell = draw.layer(torch::nn::RNNCell(x.size(1), 3));
        return RandomStep{"RNNCell(C, 3)(x)", [=](X t) {
                            return torch::nn::RNNCell(cell)->forward(t);
                          }};
      }
    }
  };
  steps["LSTM"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const auto layer = draw.layer(
        torch::nn::LSTM(torch::nn::LSTMOptions(x.size(2), draw.integer(1, 4))
                            .num_layers(draw.integer(1, 2))
                            .bidirectional(draw.yes())
                            .batch_first(true)));
    return RandomStep{c10::str(*layer, "(x)"), [=](X t) {
                        return std::get<0>(torch::nn::LSTM(layer)->forward(t));
                      }};
  };
  steps["GRU"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const auto layer = draw.layer(
        torch::nn::GRU(torch::nn::GRUOptions(x.size(2), draw.integer(1, 4))
                           .num_layers(draw.integer(1, 2))
                           .bidirectional(draw.yes())));
    return RandomStep{
        c10::str(*layer, "(x.transpose(0, 1)).transpose(0, 1)"),
        [=](X t) {
          return std::get<0>(torch::nn::GRU(layer)->forward(t.transpose(0, 1)))
              .transpose(0, 1);
        }};
  };
  steps["last state of a GRU"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    const auto layer = draw.layer(
        torch::nn::GRU(torch::nn::GRUOptions(x.size(2), 3).batch_first(true)));
    return RandomStep{
        "get<1>(GRU(C, 3)(x, zeros({1, x.size(0), 3})))[0]",
        [=](X t) {
          const Tensor state = torch::zeros({1, t.size(0), 3}, t.options());
          return std::get<1>(torch::nn::GRU(layer)->forward(t, state))[0];
        }};
  };
  steps["RNN"] = [](Draw& draw, const Tensor& x) -> Step {
    if (!is_sequence(x)) return std::nullopt;
    auto options =
        torch::nn::RNNOptions(x.size(2), draw.integer(1, 4)).batch_first(true);
    if (draw.yes()) options.nonlinearity(torch::kReLU);
    const auto layer = draw.layer(torch::nn::RNN(options));
    return RandomStep{c10::str(*layer, "(x)"), [=](X t) {
                        return std::get<0>(torch::nn::RNN(layer)->forward(t));
                      }};
  };
}

/// For words [N, T] kLong.
inline void add_words(Steps& steps) {
  using X = const Tensor&;
  const auto is_words = [](X x) { return x.scalar_type() == torch::kLong; };
  steps["Embedding"] = [=](Draw& draw, const Tensor& x) -> Step {
    if (!is_words(x)) return std::nullopt;
    const auto layer =
        draw.layer(torch::nn::Embedding(10, 2 * draw.integer(1, 3)));
    return RandomStep{c10::str(*layer, "(x)"), [=](X t) {
                        return torch::nn::Embedding(layer)->forward(t);
                      }};
  };
  steps["whole numbers"] = [=](Draw& draw, const Tensor& x) -> Step {
    if (!is_words(x)) return std::nullopt;
    if (draw.yes()) {
      return RandomStep{"(x * 2 - 3).abs().clamp(0, 9)", [](X t) {
                          return (t * 2 - 3).abs().clamp(0, 9);
                        }};
    }
    return RandomStep{"maximum(x, 9 - x).roll(1, 1)", [](X t) {
                        return torch::maximum(t, 9 - t).roll(1, 1);
                      }};
  };
  steps["words as floats"] = [=](Draw& draw, const Tensor& x) -> Step {
    if (!is_words(x)) return std::nullopt;
    if (draw.yes()) {
      return RandomStep{"x.to(kFloat) / 3", [](X t) {
                          return t.to(torch::kFloat) / 3;
                        }};
    }
    return RandomStep{"x / 3 + (x > 4)", [](X t) { return t / 3 + (t > 4); }};
  };
}

}  // namespace random_modules

inline const std::map<std::string, DrawStep>& random_steps() {
  static const std::map<std::string, DrawStep> all = [] {
    using namespace random_modules;
    Steps steps;
    add_functions(steps);
    add_in_place(steps);
    add_arithmetic(steps);
    add_comparisons(steps);
    add_types(steps);
    add_reductions(steps);
    add_views(steps);
    add_parts(steps);
    add_new(steps);
    add_places(steps);
    add_convolutions(steps);
    add_resizing(steps);
    add_products(steps);
    add_norms(steps);
    add_attention(steps);
    add_recurrent_layers(steps);
    add_words(steps);
    return steps;
  }();
  return all;
}

/// An example input: images, sequences, rows or words. Steps are drawn to fit
/// it.
inline torch::Tensor random_input(std::mt19937_64& random) {
  const auto size = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  switch (size(0, 5)) {
    case 0:
      return torch::randn({2, size(2, 6)});
    case 1:
      return torch::randn({2, size(2, 6), size(2, 6)});
    case 2:
      return torch::randint(10, {2, size(3, 6)}, torch::kLong);
    default:
      return torch::randn({2, size(2, 4), size(5, 9), size(5, 9)});
  }
}

/// \param names   Names of the steps to draw from.
/// \param length  Number of steps of the module.
inline RandomCase random_case(
    std::mt19937_64& random,
    const std::vector<std::string>& names,
    int64_t length) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(random());
  RandomCase drawn{std::make_shared<RandomModuleImpl>(), random_input(random)};
  RandomArguments draw(random, *drawn.module);
  drawn.has_any_size = drawn.input.dim() == 4 && draw.yes();
  // The results of the steps so far, for each size that the module must
  // support.
  Tensors states = {
      drawn.input,
      drawn.inputs(1, false),
      drawn.inputs(5, false)};
  if (drawn.has_any_size) {
    states.push_back(drawn.inputs(3, true));
    states.push_back(drawn.input.repeat({1, 1, 2, 3}));
  }
  const auto fits = [](const torch::Tensor& y, const torch::Tensor& first) {
    return y.dim() == first.dim() && y.scalar_type() == first.scalar_type() &&
           y.numel() > 0 && y.numel() < 40'000 && y.dim() >= 1 && y.dim() < 6 &&
           y.isfinite().all().item<bool>() && y.abs().max().item<double>() < 50;
  };
  for (int64_t tries = 0;
       tries < 400 && std::ssize(drawn.module->steps) < length;
       ++tries) {
    const std::string& name = draw.one_of(names);
    try {
      const auto step = random_steps().at(name)(draw, states[0]);
      if (!step) continue;
      Tensors next;
      for (const torch::Tensor& state : states) {
        next.push_back(step->run(state));
        if (!fits(next.back(), next[0])) break;
      }
      if (!fits(next.back(), next[0])) continue;
      states = next;
      drawn.module->steps.push_back(*step);
    } catch (const std::exception&) {  // the step does not support this tensor
    }
  }
  if (draw.integer(0, 3) == 0) {
    drawn.module->shown = draw.integer(0, std::ssize(drawn.module->steps));
  }
  drawn.module->eval();
  return drawn;
}

}  // namespace tern::testing_support
