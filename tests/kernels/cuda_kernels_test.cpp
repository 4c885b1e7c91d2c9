#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/boxes/box_ops.h"
#include "tern/kernels/boxes/move_boxes_math.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/images/augment_images_math.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/kernels/optim/fused_step_math.h"
#include "tern/kernels/optim/unscale_and_check.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/tolerance.h"

// Included before the kernels, because it defines CUDA's keywords for the CPU.
#include "tern/tests/kernels/cuda_on_cpu.h"
// These definitions take precedence over those in the library, which stay
// unused.
#include "tern/kernels/boxes/move_boxes_cuda.cu"
#include "tern/kernels/boxes/nms_cuda.cu"
#include "tern/kernels/images/augment_images_cuda.cu"
#include "tern/kernels/images/normalize_images_cuda.cu"
#include "tern/kernels/optim/fused_step_cuda.cu"
#include "tern/kernels/optim/unscale_and_check_cuda.cu"

// Runs the CUDA kernels on any machine and expects the results of the CPU
// kernels bit for bit.
namespace tern::test::cuda_kernels_test {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<torch::ScalarType> kFloats = {
    torch::kFloat,
    torch::kHalf,
    torch::kBFloat16};

ElementType type_of(const torch::Tensor& tensor) {
  return element_type(tensor.scalar_type()).value();
}

template <class Tensor>
Tensor step_tensor(const StepLists& lists, size_t i) {
  Tensor out{};
  if (lists.rounding_keys.empty()) {
    out.param = lists.params[i].data_ptr<float>();
  } else {
    out.weight = lists.params[i].data_ptr();
    out.weight_type = ElementType::bfloat16;
    out.rounding_key = lists.rounding_keys[i];
  }
  out.grad = lists.grads[i].data_ptr();
  out.step = lists.steps[i].data_ptr<float>();
  out.size = lists.params[i].numel();
  out.grad_type = type_of(lists.grads[i]);
  out.has_8bit_moments = lists.exp_avgs[i].scalar_type() == torch::kByte;
  if (!lists.slow_weights.empty()) {
    out.slow_weight = lists.slow_weights[i].data_ptr<float>();
  }
  if (!lists.weights.empty()) {
    out.weight = lists.weights[i].data_ptr();
    out.weight_type = type_of(lists.weights[i]);
  }
  return out;
}

/// Allocates the sums of the trust ratios. They are NaN, so that a read before
/// a write shows up.
template <class Tensor>
torch::Tensor room_for_sums(std::vector<Tensor>& list) {
  int64_t size = 0;
  for (const Tensor& tensor : list) size += 2 * block_count(tensor.size);
  const auto room = torch::full({size}, kNaN, torch::kDouble);
  double* next = room.data_ptr<double>();
  for (Tensor& tensor : list) {
    tensor.sums = next;
    next += 2 * block_count(tensor.size);
  }
  return room;
}

struct State {
  float grad_scale = 1, found_inf = 0;

  GradStatePointers pointers() const { return {&grad_scale, &found_inf}; }
  GradState tensors() const {
    return {torch::tensor(grad_scale), torch::tensor(found_inf)};
  }
};

void adam(
    const StepLists& lists,
    const FusedAdamArgs& args,
    const State& state = {},
    const FusedAdamArgs* args_in_memory = nullptr) {
  std::vector<AdamTensor> list;
  for (size_t i = 0; i < lists.params.size(); ++i) {
    AdamTensor& out = list.emplace_back(step_tensor<AdamTensor>(lists, i));
    out.states[0] = lists.exp_avgs[i].data_ptr();
    out.states[1] = lists.exp_avg_sqs[i].data_ptr();
    if (args.amsgrad) {
      out.states[2] = lists.max_exp_avg_sqs[i].data_ptr();
    }
  }
  const auto sums = room_for_sums(list);
  const auto count = static_cast<int64_t>(list.size());
  ASSERT_EQ(
      fused_step_cuda(
          list.data(),
          count,
          args,
          args_in_memory,
          state.pointers(),
          nullptr),
      cudaSuccess);
}

void sgd(
    const StepLists& lists,
    const FusedSgdArgs& args,
    const State& state = {}) {
  std::vector<SgdTensor> list;
  for (size_t i = 0; i < lists.params.size(); ++i) {
    SgdTensor& out = list.emplace_back(step_tensor<SgdTensor>(lists, i));
    if (args.momentum != 0) {
      out.states[0] = lists.momentum_buffers[i].data_ptr();
    }
  }
  const auto sums = room_for_sums(list);
  const auto count = static_cast<int64_t>(list.size());
  ASSERT_EQ(
      fused_step_cuda(
          list.data(),
          count,
          args,
          static_cast<const FusedSgdArgs*>(nullptr),
          state.pointers(),
          nullptr),
      cudaSuccess);
}

void adam_of_the_cpu(
    const StepLists& lists,
    const FusedAdamArgs& args,
    const State& state = {}) {
  fused_adam_(
      lists.tensors(),
      lists.exp_avgs,
      lists.exp_avg_sqs,
      args.amsgrad ? lists.max_exp_avg_sqs : std::vector<torch::Tensor>(),
      args,
      state.tensors());
}

void sgd_of_the_cpu(
    const StepLists& lists,
    const FusedSgdArgs& args,
    const State& state = {}) {
  fused_sgd_(
      lists.tensors(),
      args.momentum != 0 ? lists.momentum_buffers
                         : std::vector<torch::Tensor>(),
      args,
      state.tensors());
}

/// Ends of vectors, of threads and of a block's chunk.
std::vector<std::vector<int64_t>> shapes() {
  auto shapes = small_shapes();
  shapes.insert(shapes.end(), {{kChunk - 1}, {kChunk}, {2 * kChunk + 5}});
  return shapes;
}

TEST(CudaKernels, AdamEqualsTheCpu) {
  for (const auto grad : kFloats) {
    for (const auto weight : kFloats) {
      for (const bool flag : {false, true}) {
        auto expected = make_step_lists(
            shapes(),
            {.grad_type = grad, .weight_type = weight});
        auto actual = expected.clone();
        const FusedAdamArgs args{
            .lr = 0.01,
            .weight_decay = 0.1,
            .amsgrad = flag,
            .decoupled_weight_decay = flag};
        adam(actual, args, {.grad_scale = 3});
        adam_of_the_cpu(expected, args, {.grad_scale = 3});
        EXPECT_TRUE(lists_bit_equal(actual, expected));
      }
    }
  }
}

TEST(CudaKernels, SgdEqualsTheCpu) {
  for (const FusedSgdArgs& args : sgd_variants()) {
    for (const float steps_done : {0.0f, 3.0f}) {
      auto expected = make_step_lists(
          shapes(),
          {.grad_type = torch::kHalf,
           .weight_type = torch::kHalf,
           .steps_done = steps_done});
      auto actual = expected.clone();
      sgd(actual, args, {.grad_scale = 1024});
      sgd_of_the_cpu(expected, args, {.grad_scale = 1024});
      EXPECT_TRUE(lists_bit_equal(actual, expected));
    }
  }
}

/// RAdam before and after its second moment is trusted, LAMB, LARS and LARC, in
/// a Lookahead synchronization step.
TEST(CudaKernels, StepsOfFastaisOptimizersEqualTheCpu) {
  const LookaheadArgs lookahead = {.k = 4};
  for (const float steps_done : {3.0f, 7.0f}) {
    const auto type = steps_done == 3 ? torch::kHalf : torch::kBFloat16;
    const StepListOptions options = {
        .grad_type = type,
        .weight_type = type,
        .steps_done = steps_done,
        .looks_ahead = true};
    for (const bool flag : {false, true}) {
      auto expected = make_step_lists({{3}, {1023}, {kChunk + 5}}, options);
      auto actual = expected.clone();
      const FusedAdamArgs of_adam = {
          .lr = 0.01,
          .beta2 = 0.99,
          .weight_decay = 0.1,
          .decoupled_weight_decay = flag,
          .rectified = !flag,
          .trust_ratio = flag,
          .lookahead = lookahead};
      adam(actual, of_adam, {.grad_scale = 3});
      adam_of_the_cpu(expected, of_adam, {.grad_scale = 3});
      const FusedSgdArgs of_sgd = {
          .lr = 0.1,
          .momentum = flag ? 0.9 : 0,
          .weight_decay = 0.1,
          .decoupled_weight_decay = !flag,
          .trust_coeff = 0.02,
          .clip = flag,
          .lookahead = lookahead};
      for (auto* lists : {&actual, &expected}) {
        for (torch::Tensor& steps : lists->steps) steps.fill_(steps_done);
      }
      sgd(actual, of_sgd, {.grad_scale = 3});
      sgd_of_the_cpu(expected, of_sgd, {.grad_scale = 3});
      EXPECT_TRUE(lists_bit_equal(actual, expected));
    }
  }
}

// All step features at once that round no value twice.
TEST(CudaKernels, BFloat16ParametersAreRoundedAsOnTheCpu) {
  for (const bool has_8bit_moments : {false, true}) {
    auto expected = make_step_lists(
        {{3}, {1024}, {1025}, {kChunk + 5}},
        {.grad_type = torch::kBFloat16,
         .looks_ahead = true,
         .has_8bit_moments = has_8bit_moments,
         .param_type = torch::kBFloat16});
    auto actual = expected.clone();
    for (const bool flag : {true, false}) {
      const FusedAdamArgs of_adam = {
          .rectified = !flag,
          .trust_ratio = flag,
          .lookahead = {.k = 2}};
      adam(actual, of_adam);
      adam_of_the_cpu(expected, of_adam);
      const FusedSgdArgs of_sgd = {
          .momentum = 0.9,
          .trust_coeff = 0.02,
          .clip = flag,
          .lookahead = {.k = 2}};
      sgd(actual, of_sgd);
      sgd_of_the_cpu(expected, of_sgd);
    }
    EXPECT_TRUE(lists_bit_equal(actual, expected));
  }
}

// Sizes that are and are not multiples of a vector of four.
TEST(CudaKernels, EightBitMomentsEqualTheCpu) {
  auto expected = make_step_lists(
      {{3}, {1020}, {1023}, {kChunk + 260}, {kChunk + 5}},
      {.grad_type = torch::kHalf,
       .weight_type = torch::kHalf,
       .looks_ahead = true,
       .has_8bit_moments = true});
  auto actual = expected.clone();
  for (const bool flag : {false, true}) {
    const FusedAdamArgs of_adam = {
        .amsgrad = !flag,
        .trust_ratio = flag,
        .lookahead = {.k = 2}};
    adam(actual, of_adam, {.grad_scale = 3});
    adam_of_the_cpu(expected, of_adam, {.grad_scale = 3});
    const FusedSgdArgs of_sgd = {
        .momentum = 0.9,
        .trust_coeff = flag ? 0.02 : 0,
        .lookahead = {.k = 2}};
    sgd(actual, of_sgd, {.grad_scale = 3});
    sgd_of_the_cpu(expected, of_sgd, {.grad_scale = 3});
  }
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

TEST(CudaKernels, AListLongerThanOneLaunchIsSteppedCompletely) {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t i = 0; i < kMostRecords<AdamTensor> * 5 / 4; ++i) {
    shapes.push_back({i % 7 == 0 ? 0 : 1 + i % 50});
  }
  auto expected = make_step_lists(shapes);
  auto actual = expected.clone();
  adam(actual, {});
  adam_of_the_cpu(expected, {});
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

// Lengths around the switch to the next larger table, with and without an empty
// parameter, which takes no place in the table.
TEST(CudaKernels, AListOfAnyLengthIsSteppedCompletely) {
  for (const int64_t length : {15, 16, 17, 18}) {
    std::vector<std::vector<int64_t>> shapes(length, {5});
    if (length % 2 == 0) shapes.insert(shapes.begin() + length / 2, {0});
    auto expected = make_step_lists(shapes);
    auto actual = expected.clone();
    adam(actual, {});
    adam_of_the_cpu(expected, {});
    EXPECT_TRUE(lists_bit_equal(actual, expected)) << length;
  }
}

TEST(CudaKernels, FoundInfLeavesEverythingUnchanged) {
  for (const float found : {1.0f, 0.5f, kNaN}) {
    auto lists = make_step_lists(
        shapes(),
        {.grad_type = torch::kHalf, .weight_type = torch::kHalf});
    auto before = lists.clone();
    adam(lists, {.weight_decay = 0.1}, {.found_inf = found});
    sgd(lists, {.momentum = 0.9}, {.found_inf = found});
    EXPECT_TRUE(lists_bit_equal(lists, before));
    auto small = make_step_lists(
        shapes(),
        {.grad_type = torch::kBFloat16,
         .looks_ahead = true,
         .has_8bit_moments = true,
         .param_type = torch::kBFloat16});
    before = small.clone();
    const LookaheadArgs lookahead = {.k = 1};
    adam(
        small,
        {.trust_ratio = true, .lookahead = lookahead},
        {.found_inf = found});
    sgd(small,
        {.momentum = 0.9, .trust_coeff = 0.02, .lookahead = lookahead},
        {.found_inf = found});
    EXPECT_TRUE(lists_bit_equal(small, before));
  }
}

// Unaligns one list at a time, since one unaligned list already rules out
// vectors.
TEST(CudaKernels, UnalignedTensorsAreStepped) {
  const StepListOptions options = {
      .grad_type = torch::kHalf,
      .weight_type = torch::kBFloat16,
      .looks_ahead = true};
  auto expected = make_step_lists({{1000}, {kChunk + 7}}, options);
  const auto aligned = expected.clone();
  const FusedAdamArgs args = {.amsgrad = true, .lookahead = {.k = 2}};
  adam_of_the_cpu(expected, args);
  const size_t lists = expected.lists().size();
  for (size_t list = 0; list < lists; ++list) {
    auto actual = aligned.clone();
    for (torch::Tensor& tensor : *actual.lists()[list]) {
      const auto room = torch::empty({tensor.numel() + 1}, tensor.options());
      tensor = room.narrow(0, 1, tensor.numel()).view_as(tensor).copy_(tensor);
    }
    adam(actual, args);
    EXPECT_TRUE(lists_bit_equal(actual, expected)) << "list " << list;
  }
}

TEST(CudaKernels, AStepReadsHyperparametersFromMemory) {
  const FusedAdamArgs now = {
      .lr = 0.01,
      .weight_decay = 0.1,
      .decoupled_weight_decay = true};
  auto expected = make_step_lists({{1000}});
  auto actual = expected.clone();
  adam(actual, {.lr = 0.5}, {}, &now);
  adam_of_the_cpu(expected, now);
  EXPECT_TRUE(lists_bit_equal(actual, expected));
}

/// \return whether a NaN or infinity was found.
bool unscale(const std::vector<torch::Tensor>& grads, const float* inv_scale) {
  std::vector<GradTensor> list;
  for (const torch::Tensor& grad : grads) {
    list.push_back({grad.data_ptr(), grad.numel(), type_of(grad)});
  }
  float found = 0;
  const auto count = static_cast<int64_t>(list.size());
  EXPECT_EQ(
      unscale_and_check_cuda(list.data(), count, inv_scale, &found, nullptr),
      cudaSuccess);
  return found != 0;
}

// Each launch copies its arguments; the arguments of a long list take 30 KB.
TEST(CudaKernels, AShortListUsesASmallTable) {
  const auto table_bytes = [](size_t tensors) {
    std::vector<AdamTensor> list(tensors);
    for (AdamTensor& tensor : list) tensor.size = 4;
    size_t bytes = 0;
    EXPECT_EQ(
        for_each_table(
            list.data(),
            std::ssize(list),
            [&](const auto& table, int32_t) {
              bytes += sizeof(table);
              return cudaSuccess;
            }),
        cudaSuccess);
    return bytes;
  };
  EXPECT_LE(table_bytes(6), 2048u);
  adam(make_step_lists({{4}, {4}}), {});
  EXPECT_LE(cuda_on_cpu::argument_bytes, 256u);  // for the step counts
  float scale = 2;
  unscale({torch::ones({4})}, &scale);
  EXPECT_LE(cuda_on_cpu::argument_bytes, 1024u);
}

TEST(CudaKernels, UnscaleEqualsTheCpu) {
  std::vector<torch::Tensor> actual, expected;
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    for (const auto& shape : shapes()) {
      for (const int64_t skipped : {0, 1}) {
        const int64_t size = shape[0];
        expected.push_back((torch::randn({size}) * 100).to(type));
        actual.push_back(torch::empty({size + skipped}, type)
                             .narrow(0, skipped, size)
                             .copy_(expected.back()));
      }
    }
  }
  const float inv_scale = 0.3f;
  EXPECT_FALSE(unscale(actual, &inv_scale));
  unscale_and_check_(expected, torch::tensor(inv_scale), torch::zeros({}));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(bit_equal(actual[i], expected[i])) << "tensor " << i;
  }
}

TEST(CudaKernels, NoNonFiniteValueIsMissedOrWritten) {
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    for (const int64_t place :
         {int64_t{0}, int64_t{1}, kChunk - 1, kChunk, kChunk + 6}) {
      const auto grad = torch::ones({kChunk + 7}, type);
      grad[place] = place % 2 ? kNaN : -std::numeric_limits<float>::infinity();
      const auto before = grad.clone();
      EXPECT_TRUE(unscale({grad}, nullptr)) << "at " << place;
      EXPECT_TRUE(bit_equal(grad, before));
    }
  }
}

TEST(CudaKernels, NormalizeEqualsTheCpu) {
  for (const auto dtype : kFloats) {
    for (const int64_t channels : {1, 3, 13, 256}) {
      for (const int64_t width : {1, 7, 64}) {
        for (const int64_t skipped : {0, 1}) {
          const std::vector<int64_t> sizes = {2, 5, width, channels};
          const int64_t size = 10 * width * channels;
          const auto room =
              torch::randint(0, 256, {size + skipped}, torch::kByte);
          const auto images = room.narrow(0, skipped, size).view(sizes);
          std::vector<double> mean, stddev;
          std::vector<float> scale(channels), offset(channels);
          for (int64_t c = 0; c < channels; ++c) {
            mean.push_back(0.4 + 0.001 * static_cast<double>(c));
            stddev.push_back(0.2 + 0.001 * static_cast<double>(c));
          }
          set_normalize_factors(mean, stddev, scale.data(), offset.data());
          const auto actual = torch::empty(sizes, dtype);
          const NormalizeArgs args = {
              .images = images.data_ptr<uint8_t>(),
              .out = actual.data_ptr(),
              .out_type = type_of(actual),
              .size = size,
              .channels = channels,
              .scale = scale.data(),
              .offset = offset.data()};
          ASSERT_EQ(normalize_images_cuda(args, nullptr), cudaSuccess);
          EXPECT_TRUE(bit_equal(
              actual,
              normalize_images(images, mean, stddev, dtype)
                  .permute({0, 2, 3, 1})));
        }
      }
    }
  }
}

// As if the grid were too large for one pack per thread.
TEST(CudaKernels, NormalizeLoopsOverItsImages) {
  const int64_t size = kThreads * 4 * 5 + 8;
  const auto images = torch::randint(0, 256, {size}, torch::kByte);
  const auto actual = torch::zeros({size}), expected = torch::zeros({size});
  Channels constants = {.scale = {1, 2, 3}, .offset = {4, 5, 6}};
  for (const auto& [out, blocks] :
       {std::pair{expected, 6}, std::pair{actual, 2}}) {
    ASSERT_EQ(
        launch(
            normalize_kernel<float, 4>,
            blocks,
            nullptr,
            images.data_ptr<uint8_t>(),
            out.data_ptr<float>(),
            size,
            3,
            constants),
        cudaSuccess);
  }
  EXPECT_EQ(expected[size - 1].item<float>(), [&] {
    const auto channel = (size - 1) % 3;
    const auto byte = images[size - 1].item<uint8_t>();
    return static_cast<float>(byte) * constants.scale[channel] +
           constants.offset[channel];
  }());
  EXPECT_TRUE(bit_equal(actual, expected));
}

TEST(CudaKernels, BoxesAndPointsAreMovedAsOnTheCpu) {
  // More rows than a block has threads.
  const int64_t images = 3, boxes = 250;
  torch::Tensor matrices = torch::eye(3, torch::kDouble).repeat({images, 1, 1});
  matrices += 0.01 * torch::rand({images, 3, 3}, torch::kDouble);
  matrices.select(1, 2).slice(1, 0, 2).mul_(0.1);
  const torch::Tensor corners = torch::rand({images, boxes, 2}) * 80;
  const torch::Tensor all =
      torch::cat({corners, corners + torch::rand({images, boxes, 2}) * 40}, 2);
  const torch::Tensor labels = torch::randint(-1, 5, {images, boxes});
  std::vector<torch::Tensor> results[2];
  for (const int by_kernel : {0, 1}) {
    auto& out = results[by_kernel];
    out = {all.clone(), labels.clone(), torch::full({images, boxes}, 50.f)};
    out.insert(out.end(), {corners.clone(), labels > 0});
    MoveArgs args{};
    args.matrices = matrices.const_data_ptr<double>();
    args.count = images * boxes;
    args.per_image = boxes;
    args.height = args.width = 100;
    args.min_share = 0.3;
    args.coordinates = out[0].mutable_data_ptr<float>();
    args.labels = out[1].mutable_data_ptr<int64_t>();
    args.areas = out[2].mutable_data_ptr<float>();
    MoveArgs points = args;
    points.coordinates = out[3].mutable_data_ptr<float>();
    points.visible = out[4].mutable_data_ptr<bool>();
    if (by_kernel != 0) {
      ASSERT_EQ(move_boxes_cuda(args, nullptr), cudaSuccess);
      ASSERT_EQ(move_points_cuda(points, nullptr), cudaSuccess);
      continue;
    }
    for (int64_t row = 0; row < args.count; ++row) {
      move_box(args, row);
      move_point(points, row);
    }
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(results[0][i], results[1][i])) << i;
  }
  EXPECT_GT((results[1][1] == -1).sum().item<int64_t>(), 60);
}

TEST(CudaKernels, AugmentEqualsTheCpu) {
  constexpr int32_t kCount = 9;
  std::vector<AugmentRecord> records(kCount);
  std::vector<PaintedRectangle> rectangles(2);
  rectangles[0] = {.top = 2, .left = 3, .bottom = 9, .right = 8, .value = 77};
  rectangles[1] = rectangles[0];
  rectangles[1].noise = true;
  for (int32_t i = 0; i < kCount; ++i) {
    const auto number = static_cast<float>(i);
    const float cosine = std::cos(number / 10), sine = std::sin(number / 10);
    records[i] = {
        .matrix =
            {cosine,
             -sine,
             0.7f * number,
             sine,
             cosine,
             -1.3f,
             1e-4f * number,
             0,
             1},
        .jitter_x = i % 2 ? 1.5f : 0.f,
        .jitter_y = i % 2 ? 1.5f : 0.f,
        .jitter_key = static_cast<uint32_t>(i),
        .padding = static_cast<Padding>(i % 3),
        .mixes_colors = i % 4 == 1,
        .scale = 1.2f,
        .shift = 0.1f,
        .saturation = 0.7f,
        .hue = 0.1f * number,
        .first_rectangle = 0,
        .rectangles = i % 3};
  }
  const auto tables = torch::randint(0, 256, {kCount, 256}, torch::kByte);
  for (const int32_t channels : {1, 3}) {
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 5}, {37, 41}}) {
      const auto images = torch::randint(
          0,
          256,
          {kCount, height, width, channels},
          torch::kByte);
      for (const auto dtype :
           {torch::kByte, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
        const auto actual = torch::empty(images.sizes(), dtype);
        const auto expected = torch::empty(images.sizes(), dtype);
        AugmentArgs args = {
            .images = images.data_ptr<uint8_t>(),
            .records = records.data(),
            .tables = tables.data_ptr<uint8_t>(),
            .rectangles = rectangles.data(),
            .out = expected.data_ptr(),
            .to_bytes = dtype == torch::kByte,
            .out_type = element_type(dtype).value_or(ElementType::float32),
            .count = kCount,
            .height = height,
            .width = width,
            .channels = channels,
            .scale = {0.01f, 0.02f, 0.03f},
            .offset = {-1, -2, -3}};
        augment_images_cpu(args);
        args.out = actual.data_ptr();
        ASSERT_EQ(augment_images_cuda(args, nullptr), cudaSuccess);
        EXPECT_TRUE(bit_equal(actual, expected));
      }
    }
  }
}

// More boxes per image than fit one word of 64, one block of 512, and two
// blocks.
TEST(CudaKernels, NmsKeepsTheSameBoxesAsOnTheCpu) {
  torch::manual_seed(5);
  for (const int64_t count : {1, 63, 64, 65, 200, 512, 513, 1100}) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      const torch::Tensor corners = torch::rand({2, count, 2}, type) * 60;
      const torch::Tensor sizes = torch::rand({2, count, 2}, type) * 30;
      const torch::Tensor boxes = torch::cat({corners, corners + sizes}, 2);
      const torch::Tensor classes = torch::randint(-1, 3, {2, count});
      torch::Tensor keep = torch::empty({2, count}, torch::kBool);
      const int64_t words = (count + 63) / 64;
      // Filled so that a read before a write shows up.
      const torch::Tensor suppressed = torch::full({2, count, words}, -1);
      const torch::Tensor gone = torch::full({2, words}, -1);
      NmsArgs args;
      args.boxes = boxes.const_data_ptr();
      args.is_double = type == torch::kDouble;
      args.classes = classes.const_data_ptr<int64_t>();
      args.images = 2;
      args.count = count;
      args.threshold = 0.25;
      args.keep = keep.mutable_data_ptr<bool>();
      args.suppressed = static_cast<uint64_t*>(suppressed.mutable_data_ptr());
      args.gone = static_cast<uint64_t*>(gone.mutable_data_ptr());
      ASSERT_EQ(nms_cuda(args, nullptr), cudaSuccess);
      EXPECT_TRUE(keep.equal(nms_mask(boxes, classes, 0.25))) << count;
    }
  }
}

}  // namespace
}  // namespace tern::test::cuda_kernels_test
