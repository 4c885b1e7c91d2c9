#include "tern/learner/optim/fused_optimizer.h"

#include <sstream>

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/batch.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"

namespace tern::fused_optimizer_test {
namespace {

using test::bit_equal;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

torch::Tensor param(torch::ArrayRef<float> values) {
  return torch::tensor(values).requires_grad_();
}

void set_grad(const torch::Tensor& param, torch::ArrayRef<float> values) {
  param.mutable_grad() = torch::tensor(values);
}

// Some parameters with gradients that depend on the step.
Tensors make_params() {
  auto generator = at::detail::createCPUGenerator(3);
  Tensors params;
  for (const int64_t size : {1, 3, 70}) {
    params.push_back(torch::randn({size, 2}, generator).requires_grad_());
  }
  return params;
}

void run_steps(torch::optim::Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    for (const auto& group : optimizer.param_groups()) {
      for (const torch::Tensor& p : group.params()) {
        p.mutable_grad() = (p.detach() * 3 + step).sin();
      }
    }
    optimizer.step();
  }
}

template <class To>
void copy_through_archive(const torch::optim::Optimizer& from, To& to) {
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  from.save(out);
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  to.load(in);
}

template <class Optimizer, class Other = Optimizer>
void expect_resume_is_bit_exact(typename Optimizer::Options options) {
  Tensors whole = make_params();
  Optimizer first(whole, options);
  run_steps(first, 0, 3);

  Tensors resumed;
  for (const auto& p : whole) {
    resumed.push_back(p.detach().clone().requires_grad_());
  }
  Optimizer second(resumed, typename Optimizer::Options(0.5));
  copy_through_archive(first, second);
  EXPECT_EQ(
      second.param_groups()[0].options().get_lr(),
      first.param_groups()[0].options().get_lr());

  run_steps(first, 3, 6);
  run_steps(second, 3, 6);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(bit_equal(resumed[i], whole[i]));
  }
}

TEST(FusedOptimizer, ContinuesBitIdenticalFromAnArchive) {
  expect_resume_is_bit_exact<optim::SGD>(SGDOptions(.1).momentum(.9));
  expect_resume_is_bit_exact<optim::Adam>(AdamOptions(.1).amsgrad(true));
  expect_resume_is_bit_exact<optim::AdamW>(AdamWOptions(.1).weight_decay(.1));
  expect_resume_is_bit_exact<optim::Lamb>(optim::LambOptions(.1));
  expect_resume_is_bit_exact<optim::Larc>(
      optim::LarcOptions(.1).trust_coeff(.1).eps(.1).clip(false));
}

TEST(FusedOptimizer, SavesTheKindOfWeightDecay) {
  optim::SGD from(make_params(), SGDOptions(.1));
  optim::SGD to(make_params(), SGDOptions(.1));
  from.decoupled_weight_decay(true);
  copy_through_archive(from, to);
  EXPECT_TRUE(to.decoupled_weight_decay());
}

template <class TorchOptimizer, class Optimizer>
void expect_takes_over_from(typename Optimizer::Options options) {
  Tensors theirs = make_params();
  TorchOptimizer torch_optimizer(theirs, options);
  run_steps(torch_optimizer, 0, 3);
  Tensors ours;
  for (const auto& p : theirs) {
    ours.push_back(p.detach().clone().requires_grad_());
  }
  Optimizer optimizer(ours, options);
  copy_through_archive(torch_optimizer, optimizer);
  run_steps(torch_optimizer, 3, 6);
  run_steps(optimizer, 3, 6);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(test::all_close(ours[i], theirs[i]));
  }
}

TEST(FusedOptimizer, LoadsArchivesOfLibTorch) {
  expect_takes_over_from<torch::optim::SGD, optim::SGD>(
      SGDOptions(.1).momentum(.9).dampening(.5));
  expect_takes_over_from<torch::optim::Adam, optim::Adam>(AdamOptions(.1));
  expect_takes_over_from<torch::optim::AdamW, optim::AdamW>(AdamWOptions(.1));
}

TEST(FusedOptimizer, LeavesAParameterWithoutGradientUnchanged) {
  const auto used = param({1, 2});
  const auto unused = param({3, 4});
  optim::AdamW optimizer({used, unused}, AdamWOptions(.1));
  set_grad(used, {1, 1});
  optimizer.step();
  EXPECT_TRUE(torch::equal(unused.detach(), torch::tensor({3.f, 4.f})));
  EXPECT_EQ(optimizer.state().size(), 1);

  set_grad(unused, {1, 1});  // its first step, at a later time
  optimizer.step();
  EXPECT_TRUE(test::all_close(
      unused.detach(),
      torch::tensor({3.f, 4.f}) * (1 - 1e-3) - .1));
}

TEST(FusedOptimizer, StepsGroupsWithTheirOwnOptions) {
  const auto a = param({1});
  const auto b = param({1});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{a});
  groups.emplace_back(Tensors{b}, std::make_unique<SGDOptions>(10));
  optim::SGD optimizer(groups, SGDOptions(1));
  set_grad(a, {1});
  set_grad(b, {1});
  optimizer.step();
  EXPECT_EQ(a.item<float>(), 0);
  EXPECT_EQ(b.item<float>(), -9);
}

TEST(FusedOptimizer, CallsTheClosureWithGradientsEnabled) {
  const auto p = param({1});
  optim::SGD optimizer({p}, SGDOptions(1));
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = optimizer.step([&] {
    const auto value = (p * 2).sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<float>(), 2);
  EXPECT_EQ(p.item<float>(), -1);
}

TEST(FusedOptimizer, SupportsEmptyAndChannelsLastParameters) {
  const auto empty = torch::zeros({0, 3}).requires_grad_();
  const auto image = torch::ones({2, 3, 4, 4})
                         .contiguous(torch::MemoryFormat::ChannelsLast)
                         .requires_grad_();
  optim::Adam optimizer({empty, image}, AdamOptions(.1));
  empty.mutable_grad() = torch::zeros({0, 3});
  image.mutable_grad() =
      torch::arange(96.f).reshape({2, 3, 4, 4}) - 40;  // a different layout
  optimizer.step();
  EXPECT_TRUE(test::all_close(
      image.detach(),
      1 - .1 * image.grad().sign(),
      {1e-4, 1e-5}));
}

TEST(FusedOptimizer, KeepsNoReferenceToTheGradientAfterTheStep) {
  const auto p = param({1});
  optim::SGD optimizer({p}, SGDOptions(1));
  set_grad(p, {1});
  const c10::weak_intrusive_ptr<c10::TensorImpl> grad(
      p.grad().getIntrusivePtr());
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_TRUE(grad.expired());
}

TEST(FusedOptimizer, StartsMomentumLateLikeLibTorch) {
  const auto ours = param({1});
  const auto theirs = param({1});
  optim::SGD optimizer({ours}, SGDOptions(.1));
  torch::optim::SGD reference({theirs}, SGDOptions(.1));
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      for (torch::optim::Optimizer* each :
           std::initializer_list<torch::optim::Optimizer*>{
               &optimizer,
               &reference}) {
        auto& options =
            static_cast<SGDOptions&>(each->param_groups()[0].options());
        options.momentum(.9).dampening(.5);
      }
    }
    set_grad(ours, {1});
    set_grad(theirs, {1});
    optimizer.step();
    reference.step();
    EXPECT_FLOAT_EQ(ours.item<float>(), theirs.item<float>());
  }
}

TEST(FusedOptimizer, SupportsDecoupledWeightDecay) {
  const auto p = param({2});
  optim::SGD optimizer({p}, SGDOptions(.1).momentum(.9).weight_decay(.5));
  optimizer.decoupled_weight_decay(true);
  set_grad(p, {0});
  optimizer.step();
  optimizer.step();
  EXPECT_FLOAT_EQ(p.item<float>(), 2 * .95f * .95f);
}

TEST(FusedOptimizer, AlsoDividesByItsOwnScale) {
  const auto p = param({0});
  optim::SGD optimizer({p}, SGDOptions(1));
  optimizer.grad_scale(torch::tensor(4.f));
  set_grad(p, {64});
  optimizer.step();
  EXPECT_EQ(p.item<float>(), -16);
  optimizer.step_amp(torch::tensor(2.f), {});
  EXPECT_EQ(p.item<float>(), -16 - 8);
  optimizer.step_amp({}, {});  // already unscaled
  EXPECT_EQ(p.item<float>(), -16 - 8 - 64);
}

template <class Optimizer>
void expect_skip_changes_nothing(typename Optimizer::Options options) {
  Tensors params = make_params();
  Optimizer optimizer(params, options);
  for (const float found : {1.f, 2.f}) {  // first as the first step
    Tensors before;
    for (const auto& p : params) {
      before.push_back(p.detach().clone());
      p.mutable_grad() = torch::full_like(p, INFINITY);
    }
    optimizer.step_amp(torch::tensor(8.f), torch::tensor(found));
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(bit_equal(params[i], before[i]));
      auto& state = static_cast<optim::FusedParamState&>(
          *optimizer.state().at(params[i].unsafeGetTensorImpl()));
      for (const auto& [name, tensor] : state.tensors()) {
        if (!tensor->defined()) continue;
        EXPECT_EQ(tensor->abs().sum().template item<float>(), 0) << name;
      }
    }
  }
  // The step after the skipped ones is a first step.
  Tensors plain = make_params();
  Optimizer reference(plain, options);
  run_steps(optimizer, 0, 2);
  run_steps(reference, 0, 2);
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(bit_equal(params[i], plain[i]));
  }
}

TEST(FusedOptimizer, ChangesNothingAfterAnOverflow) {
  expect_skip_changes_nothing<optim::SGD>(
      SGDOptions(.1).momentum(.9).weight_decay(.1));
  expect_skip_changes_nothing<optim::Adam>(AdamOptions(.1).amsgrad(true));
  expect_skip_changes_nothing<optim::AdamW>(AdamWOptions(.1));
}

TEST(FusedOptimizer, StepsMasterWeightsFromHalfGradientsAndUpdatesWeights) {
  const auto weight = torch::ones({2}, torch::kHalf).requires_grad_();
  const auto own = param({1});  // as of a BatchNorm; its own master
  const auto master = torch::ones({2});
  optim::SGD optimizer({master, own}, SGDOptions(1e-4));
  optimizer.set_weights({master}, {weight});
  for (int step = 0; step < 10; ++step) {
    weight.mutable_grad() = torch::full({2}, 4, torch::kHalf);
    set_grad(own, {4});
    EXPECT_EQ(optimizer.gradients().size(), 2);
    optimizer.step_amp(torch::tensor(4.f), torch::tensor(0.f));
  }
  EXPECT_TRUE(test::all_close(master, torch::full({2}, .999)));
  EXPECT_TRUE(bit_equal(weight, master.to(torch::kHalf)));
  EXPECT_FLOAT_EQ(own.item<float>(), .999f);

  optimizer.set_weights({}, {});
  own.mutable_grad().reset();
  EXPECT_TRUE(optimizer.gradients().empty());
}

TEST(FusedOptimizer, MovesGradientsToTheMasterWeights) {
  const auto weight = torch::ones({2}, torch::kHalf).requires_grad_();
  const auto master = torch::ones({2});
  optim::SGD optimizer({master}, SGDOptions(1));
  optimizer.set_weights({master}, {weight});
  weight.mutable_grad() = torch::full({2}, .5, torch::kHalf);
  optimizer.move_gradients_to_masters();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_EQ(optimizer.gradients()[0].scalar_type(), torch::kFloat);
  optimizer.step();
  EXPECT_TRUE(bit_equal(weight, torch::full({2}, .5, torch::kHalf)));
}

TEST(FusedOptimizer, RejectsWhatItCannotStep) {
  expect_error<c10::ValueError>(
      [] { optim::Adam({torch::zeros({2}, torch::kDouble).requires_grad_()}); },
      {"Double", "torch::optim::Adam"});
  expect_error<c10::ValueError>(
      [] { optim::SGD({torch::zeros({2}, torch::kHalf).requires_grad_()}); },
      {"tern::optim::SGD", "Half", "master weights"});
  expect_error<c10::ValueError>(
      [] {
        optim::SGD({torch::zeros({4, 4}).slice(1, 0, 2).requires_grad_()});
      },
      {"dense", "clone()"});

  const auto table = torch::zeros({3, 2}).requires_grad_();
  optim::SGD optimizer({table}, SGDOptions(.1));
  table.mutable_grad() = torch::ones({3, 2}).to_sparse();
  expect_error<c10::ValueError>(
      [&] { optimizer.step(); },
      {"sparse", "torch::optim"});

  expect_error<c10::ValueError>(
      [&] { optimizer.set_weights({table}, {}); },
      {"1 master weights and 0 weights"});
  expect_error<c10::ValueError>(
      [&] {
        optimizer.set_weights({table}, {torch::zeros({3, 2})});
      },
      {"Float", "expected [3, 2] Half or BFloat16"});
}

const optim::FusedOptions k8Bit = {.optim_bits = 8};

int64_t state_bytes(const torch::optim::Optimizer& optimizer) {
  size_t bytes = 0;
  for (const auto& entry : optimizer.state()) {
    auto& state = static_cast<optim::FusedParamState&>(*entry.second);
    for (const auto& [name, tensor] : state.tensors()) {
      if (tensor->defined()) bytes += tensor->nbytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

Tensors large_params() {
  torch::manual_seed(5);
  return {
      torch::randn({40, 128}).requires_grad_(),
      torch::randn({128}).requires_grad_()};
}

template <class Optimizer>
void expect_8bit_resumes(typename Optimizer::Options options) {
  Tensors whole = large_params();
  Optimizer first(whole, options, k8Bit);
  run_steps(first, 0, 3);
  Tensors floats = large_params();
  Optimizer of_32_bits(floats, options);
  run_steps(of_32_bits, 0, 3);
  EXPECT_LE(state_bytes(first), 0.3 * state_bytes(of_32_bits));
  EXPECT_TRUE(test::all_close(whole[0], floats[0], {0.05, 0.05}));
  EXPECT_TRUE(bit_equal(whole[1], floats[1]));  // small: fp32 moments

  Tensors archived, named;
  for (const auto& p : whole) {
    archived.push_back(p.detach().clone().requires_grad_());
    named.push_back(p.detach().clone().requires_grad_());
  }
  Optimizer second(archived, options, k8Bit), third(named, options, k8Bit);
  copy_through_archive(first, second);
  optim::load_named_state(
      third,
      optim::numbered_names(third),
      optim::named_state(first, optim::numbered_names(first)));
  run_steps(first, 3, 6);
  run_steps(second, 3, 6);
  run_steps(third, 3, 6);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(bit_equal(archived[i], whole[i]));
    EXPECT_TRUE(bit_equal(named[i], whole[i]));
  }
}

TEST(FusedOptimizer, KeepsMomentsIn8BitsAndResumesThemBitIdentical) {
  expect_8bit_resumes<optim::SGD>(SGDOptions(.1).momentum(.9));
  expect_8bit_resumes<optim::AdamW>(AdamWOptions(.01));
  expect_8bit_resumes<optim::Adam>(AdamOptions(.01).amsgrad(true));
}

TEST(FusedOptimizer, StepsBFloat16WithoutMasterWeightsAndResumesBitIdentical) {
  Tensors whole, floats = large_params();
  for (const auto& p : large_params()) {
    whole.push_back(p.detach().to(torch::kBFloat16).requires_grad_());
  }
  const auto options = AdamWOptions(1e-4);  // 80 steps: bfloat16's unit at 1
  const optim::FusedOptions fused = {
      .lookahead = {.k = 5, .alpha = 1},
      .optim_bits = 8};
  optim::AdamW first(whole, options, fused), of_floats(floats, options);
  const auto towards_zero = [](const Tensors& params, auto& optimizer) {
    for (int step = 0; step < 40; ++step) {
      for (const auto& p : params) p.mutable_grad() = p.detach().sign();
      optimizer.step();
    }
  };
  towards_zero(whole, first);
  towards_zero(floats, of_floats);
  const auto moved = [](const torch::Tensor& p) {
    const auto before = large_params()[0].detach().to(torch::kDouble);
    const auto now = p.detach().to(torch::kDouble);
    return (before.abs() - now.abs()).mean().item<double>();
  };
  EXPECT_NEAR(moved(whole[0]), moved(floats[0]), 2e-4);

  Tensors resumed;
  for (const auto& p : whole) {
    resumed.push_back(p.detach().clone().requires_grad_());
  }
  optim::AdamW second(resumed, options, fused);
  copy_through_archive(first, second);
  towards_zero(whole, first);
  towards_zero(resumed, second);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(bit_equal(resumed[i], whole[i]));
  }
}

TEST(FusedOptimizer, RejectsStateWithDifferentBits) {
  Tensors params = large_params();
  optim::AdamW from(params, {}), to(params, {}, k8Bit);
  run_steps(from, 0, 1);
  copy_through_archive(from, to);
  expect_error<c10::ValueError>(
      [&] { to.step(); },
      {"[40, 128] is Float", "expected Byte", "optim_bits"});
}

TEST(FusedOptimizer, RejectsOptionsOutOfRange) {
  const auto make = [](auto options) {
    if constexpr (std::is_same_v<decltype(options), SGDOptions>) {
      optim::SGD({param({1})}, options);
    } else {
      optim::Adam({param({1})}, options);
    }
  };
  using Error = c10::ValueError;
  expect_error<Error>([&] { make(SGDOptions(-1)); }, {"lr is -1"});
  expect_error<Error>(
      [&] { make(SGDOptions(1).nesterov(true)); },
      {"nesterov"});
  expect_error<Error>(
      [&] {
        make(AdamOptions(1).betas({1, .9}));
      },
      {"betas are (1, 0.9)"});
  expect_error<Error>([&] { make(AdamOptions(1).eps(-1)); }, {"eps is -1"});
  expect_error<Error>(
      [] { optim::Larc({param({1})}, optim::LarcOptions(1).trust_coeff(0)); },
      {"trust_coeff is 0", "tern::optim::SGD"});
  expect_error<Error>(
      [] { optim::Lamb({param({1})}, AdamWOptions(1).amsgrad(true)); },
      {"tern::optim::Lamb", "amsgrad is true"});
  expect_error<Error>(
      [] {
        optim::SGD({param({1})}, {1}, {.lookahead = {.k = 5, .alpha = 2}});
      },
      {"k 5 and alpha 2"});
  expect_error<Error>(
      [] { optim::SGD({param({1})}, {1}, {.optim_bits = 4}); },
      {"optim_bits is 4; expected 8 or 32"});
}

TEST(FusedOptimizer, AcceptsFrozenParametersOfAnyDtypeUntilTheyHaveAGradient) {
  const auto trained = param({1, 2});
  const auto half = torch::ones({2}, torch::kHalf);
  optim::AdamW optimizer({trained, half, torch::ones({2}, torch::kDouble)});
  set_grad(trained, {1, 1});
  optimizer.step();
  EXPECT_LT(trained[0].item<float>(), 1);
  half.requires_grad_().mutable_grad() = torch::ones({2}, torch::kHalf);
  const torch::Tensor before = trained.detach().clone();
  expect_error<c10::ValueError>(
      [&] { optimizer.step(); },
      {"Half", "master weights"});
  EXPECT_TRUE(torch::equal(trained, before));
}

TEST(FusedOptimizer, AdamWIsAlwaysDecoupledAsInPyTorch) {
  const auto p = param({2}), q = param({2});
  optim::AdamW ours({p}, AdamWOptions(.1).weight_decay(.5));
  ours.decoupled_weight_decay(false);
  EXPECT_TRUE(ours.decoupled_weight_decay());
  torch::optim::AdamW theirs({q}, AdamWOptions(.1).weight_decay(.5));
  for (const auto& tensor : {p, q}) set_grad(tensor, {1});
  ours.step();
  theirs.step();
  EXPECT_FLOAT_EQ(p.item<float>(), q.item<float>());
}

TEST(FusedOptimizer, SlowWeightsRestartFromReplacedWeights) {
  const auto p = param({2});
  optim::SGD optimizer(
      {p},
      SGDOptions(0),
      optim::FusedOptions{.lookahead = {.k = 2}});
  EXPECT_TRUE(optimizer.weight_copies().empty());
  const auto step = [&] {
    set_grad(p, {1});
    optimizer.step();
  };
  step();
  const Tensors copies = optimizer.weight_copies();
  ASSERT_EQ(copies.size(), 1u);
  {
    const torch::NoGradGuard no_grad;
    p.fill_(102);
  }
  optimizer.weights_replaced();
  // In the same memory, which a recorded step reads.
  EXPECT_EQ(copies[0].item<float>(), 102.f);
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(p.item<float>(), 102.f);
}

}  // namespace
}  // namespace tern::fused_optimizer_test
