#include "tern/data/sample_dataset.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"

namespace tern::sample_dataset_test {
namespace {

torch::Tensor longs(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kLong);
}

Sample sample_of(Tensors inputs, Tensors targets = {}) {
  return {.inputs = std::move(inputs), .targets = std::move(targets)};
}

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && torch::equal(a, b);
}

void expect_same(const Batch& a, const Batch& b) {
  for (const auto list : {&Batch::inputs, &Batch::targets}) {
    ASSERT_EQ((a.*list).size(), (b.*list).size());
    for (size_t i = 0; i < (a.*list).size(); ++i) {
      EXPECT_TRUE(is_same((a.*list)[i], (b.*list)[i])) << i;
    }
  }
  EXPECT_EQ(a.indices, b.indices);
}

std::string sentence_of(
    const Collate& collate,
    const std::vector<Sample>& samples) {
  const std::string text =
      error_of<c10::ValueError>([&] { collate(samples, {}); });
  return text.substr(0, text.find('\n'));
}

/// Texts of 3, 0 and 1 words, each with a class.
std::vector<Sample> texts() {
  return {
      sample_of({longs({5, 6, 7})}, {torch::tensor(1)}),
      sample_of({longs({})}, {torch::tensor(0)}),
      sample_of({longs({8})}, {torch::tensor(1)})};
}

TEST(StackSamples, PutSamplesOfEqualShapeIntoRows) {
  const SampleList list(
      {sample_of({longs({1, 2})}, {torch::tensor(0.5f)}),
       sample_of({longs({3, 4})}, {torch::tensor(1.5f)})});
  const Batch batch = list.get_batch({1, 0}, {});
  EXPECT_EQ(batch.size(), 2);
  EXPECT_TRUE(is_same(batch.inputs.at(0), longs({3, 4, 1, 2}).view({2, 2})));
  EXPECT_TRUE(is_same(batch.targets.at(0), torch::tensor({1.5f, 0.5f})));
}

TEST(StackSamples, NameTheSampleThatDoesNotFit) {
  EXPECT_EQ(
      sentence_of(stack_samples(), texts()),
      "[stack_samples] inputs[0] of the sample in row 1 is [0] Long, but "
      "inputs[0] of the sample in row 0 is [3] Long; expected equal shapes. "
      "Pad them with pad_sequences, or pack them with pack_sequences.");
  const SampleList list(texts());
  EXPECT_EQ(
      error_of<c10::ValueError>([&] {
        list.get_batch({2, 0}, {});
      }).substr(0, 60),
      "[stack_samples] inputs[0] of sample 0 is [3] Long, but input");
  EXPECT_EQ(
      sentence_of(
          stack_samples(),
          {sample_of({longs({1})}), sample_of({torch::tensor({1.f})})}),
      "[stack_samples] inputs[0] of the sample in row 1 is [1] Float on cpu, "
      "but inputs[0] of the sample in row 0 is [1] Long on cpu; expected one "
      "dtype and device. Convert the tensor in get.");
  EXPECT_EQ(
      sentence_of(
          stack_samples(),
          {sample_of({longs({1})}), sample_of({longs({1})}, {longs({1})})}),
      "[stack_samples] the sample in row 1 has 1 inputs and 1 targets where "
      "the sample in row 0 has 1 and 0; expected the same number in each.");
  EXPECT_EQ(
      sentence_of(
          stack_samples(),
          {sample_of({longs({1})}), sample_of({torch::Tensor()})}),
      "[stack_samples] inputs[0] of the sample in row 1 is undefined; expected "
      "a tensor.");
  EXPECT_EQ(
      sentence_of(stack_samples(), {}),
      "[stack_samples] there is no sample; expected at least one.");
}

TEST(PadSequences, PadToTheLongestOfTheBatch) {
  const Batch batch = pad_sequences()(texts(), {});
  EXPECT_TRUE(is_same(
      batch.inputs.at(0),
      longs({5, 6, 7, 0, 0, 0, 8, 0, 0}).view({3, 3})));
  EXPECT_TRUE(is_same(batch.targets.at(0), longs({1, 0, 1})));
  EXPECT_EQ(batch.inputs.size(), 1u);
  EXPECT_EQ(batch.targets.size(), 1u);
}

TEST(PadSequences, AppendMasksOfTheRealValues) {
  // Two inputs and two targets; both inputs and the second target are padded.
  const auto sample = [](int64_t a, int64_t b, int64_t c) {
    return sample_of(
        {torch::ones({a, 2}), torch::ones({b}, torch::kHalf)},
        {torch::tensor(a), torch::ones({c}, torch::kLong)});
  };
  const Batch batch = pad_sequences(
      {.inputs =
           {{.position = 1, .value = -1, .mask = MaskPlace::input},
            {.position = 0, .mask = MaskPlace::target}},
       .targets = {{.position = 1, .value = -100, .mask = MaskPlace::target}}})(
      {sample(1, 2, 0), sample(2, 0, 1)},
      {});
  ASSERT_EQ(batch.inputs.size(), 3u);
  ASSERT_EQ(batch.targets.size(), 4u);
  EXPECT_TRUE(is_same(
      batch.inputs[0],
      torch::tensor({1.f, 1.f, 0.f, 0.f, 1.f, 1.f, 1.f, 1.f}).view({2, 2, 2})));
  EXPECT_TRUE(is_same(
      batch.inputs[1],
      torch::tensor({1.f, 1.f, -1.f, -1.f}).view({2, 2}).to(torch::kHalf)));
  const auto mask = [](const std::vector<int64_t>& values) {
    return longs(values).to(torch::kBool).view({2, -1});
  };
  EXPECT_TRUE(is_same(batch.inputs[2], mask({1, 1, 0, 0})));
  EXPECT_TRUE(is_same(batch.targets[1], longs({-100, 1}).view({2, 1})));
  EXPECT_TRUE(is_same(batch.targets[2], mask({1, 0, 1, 1})));
  EXPECT_TRUE(is_same(batch.targets[3], mask({0, 1})));
}

TEST(PadSequences, RoundLengthsUp) {
  const auto length = [](const SequencePadding& padding,
                         std::vector<Sample> samples) {
    return pad_sequences({.inputs = {padding}})(samples, {}).inputs[0].size(1);
  };
  const std::vector<Sample> empty = {sample_of({longs({})})};
  EXPECT_EQ(length({.multiple = 8}, texts()), 8);
  EXPECT_EQ(length({.multiple = 3}, texts()), 3);
  EXPECT_EQ(length({.min_length = 5}, texts()), 5);
  EXPECT_EQ(length({.multiple = 4, .min_length = 5}, texts()), 8);
  EXPECT_EQ(length({.fixed_length = 10}, texts()), 10);
  EXPECT_EQ(length({.fixed_length = 3}, texts()), 3);
  EXPECT_EQ(length({}, empty), 1);
  EXPECT_EQ(length({.min_length = 0}, empty), 0);
}

TEST(PadSequences, NameTheSampleThatDoesNotFit) {
  const auto pad_with = [](const SequencePadding& padding) {
    return pad_sequences({.inputs = {padding}});
  };
  EXPECT_EQ(
      sentence_of(pad_with({.fixed_length = 2}), texts()),
      "[pad_sequences] inputs[0] of the sample in row 0 is [3] Long, longer "
      "than fixed_length, 2; expected at most that length. Raise fixed_length, "
      "or truncate the sample in get.");
  EXPECT_EQ(
      sentence_of(
          pad_sequences(),
          {sample_of({torch::ones({1, 2})}), sample_of({torch::ones({0})})}),
      "[pad_sequences] inputs[0] of the sample in row 1 is [0] Float, but "
      "inputs[0] of the sample in row 0 is [1, 2] Float; expected equal shapes "
      "after the first dimension, also for an empty sample.");
  EXPECT_EQ(
      sentence_of(pad_sequences(), {sample_of({torch::tensor(1)})}),
      "[pad_sequences] inputs[0] of the sample in row 0 is [] Long, which is "
      "0-dim; expected [T, ...]. To stack this tensor, remove its position "
      "from the options.");
  EXPECT_EQ(
      sentence_of(pad_with({.value = 0.5}), texts()),
      "[pad_sequences] inputs[0] of the sample in row 0 is [3] Long, which "
      "cannot hold the padding value 0.5; expected a value of that dtype. Set "
      "SequencePadding::value, or convert the tensor in get.");
  EXPECT_EQ(
      sentence_of(pad_with({.position = 1}), texts()),
      "[pad_sequences] the options name inputs[1], but the sample in row 0 has "
      "1 inputs; expected a smaller position.");
}

TEST(PadSequences, AcceptOnlyValuesThatTheDtypeCanRepresent) {
  const auto fits = [](torch::ScalarType dtype, double value) {
    const std::vector<Sample> samples = {
        sample_of({torch::ones({1}, dtype)}),
        sample_of({torch::ones({0}, dtype)})};
    try {
      const auto padded =
          pad_sequences({.inputs = {{.value = value}}})(samples, {});
      const double got =
          padded.inputs[0][1][0].to(torch::kDouble).item<double>();
      EXPECT_TRUE(got == value || (std::isnan(got) && std::isnan(value)));
      return true;
    } catch (const c10::ValueError&) {
      return false;
    }
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(fits(torch::kByte, 255));
  EXPECT_FALSE(fits(torch::kByte, 256));
  EXPECT_FALSE(fits(torch::kByte, -1));
  EXPECT_TRUE(fits(torch::kBool, 1));
  EXPECT_FALSE(fits(torch::kBool, 2));
  EXPECT_TRUE(fits(torch::kLong, -0x1p63));
  EXPECT_FALSE(fits(torch::kLong, 0x1p63));
  EXPECT_FALSE(fits(torch::kInt, std::nan("")));
  EXPECT_FALSE(fits(torch::kHalf, -1e9));
  EXPECT_TRUE(fits(torch::kHalf, -60000));
  EXPECT_TRUE(fits(torch::kBFloat16, 0x1p30));
  EXPECT_TRUE(fits(torch::kHalf, -infinity));
  EXPECT_TRUE(fits(torch::kFloat, std::nan("")));
}

TEST(PadSequences, RejectOptionsOutOfRange) {
  EXPECT_EQ(
      error_of<c10::ValueError>([] {
        pad_sequences({.inputs = {{.multiple = 0}}});
      }).substr(0, 149),
      "[pad_sequences] the padding of inputs[0] has multiple 0, min_length 1 "
      "and fixed_length 0; expected a multiple of 1 or more, and lengths of 0 "
      "or more.");
  expect_error<c10::ValueError>(
      [] { pad_sequences({.targets = {{.fixed_length = -1}}}); },
      {"the padding of targets[0]", "fixed_length -1"});
  expect_error<c10::ValueError>(
      [] {
        pad_sequences({.inputs = {SequencePadding{}, SequencePadding{}}});
      },
      {"[pad_sequences] the options for inputs have position 0 twice; expected "
       "distinct positions of 0 or more."});
  expect_error<c10::ValueError>(
      [] { pack_sequences({.targets = {-1}}); },
      {"[pack_sequences] the options for targets have position -1; expected "});
}

TEST(PackSequences, PutLengthsBeforeTheValues) {
  const Batch batch = pack_sequences()(texts(), {});
  EXPECT_EQ(batch.size(), 3);
  ASSERT_EQ(batch.inputs.size(), 2u);
  EXPECT_TRUE(is_same(batch.inputs[0], longs({3, 0, 1})));
  EXPECT_TRUE(is_same(batch.inputs[1], longs({5, 6, 7, 8})));
  EXPECT_TRUE(is_same(batch.targets.at(0), longs({1, 0, 1})));
}

TEST(PackSequences, PackTheBoxesOfImagesAsTargetsOfYolo) {
  const auto image = [](int64_t boxes, float value) {
    return sample_of(
        {torch::zeros({3, 2, 2})},
        {torch::full({boxes, 5}, value), torch::tensor(boxes)});
  };
  const Batch batch = pack_sequences({.inputs = {}, .targets = {0}})(
      {image(0, 1), image(2, 2), image(1, 3)},
      {});
  EXPECT_EQ(batch.inputs.at(0).sizes(), (std::vector<int64_t>{3, 3, 2, 2}));
  ASSERT_EQ(batch.targets.size(), 3u);
  const torch::Tensor &lengths = batch.targets[0], &boxes = batch.targets[1];
  EXPECT_EQ(boxes.sizes(), (std::vector<int64_t>{3, 5}));
  EXPECT_TRUE(is_same(lengths, batch.targets[2]));
  const torch::Tensor rows = sample_of_row(lengths, boxes.size(0));
  EXPECT_TRUE(is_same(rows, longs({1, 1, 2})));
  EXPECT_TRUE(is_same(boxes.select(1, 0), torch::tensor({2.f, 2.f, 3.f})));
  EXPECT_TRUE(is_same(offsets_of(lengths), longs({0, 0, 2})));
}

TEST(PackSequences, OfOnlyEmptySamplesHaveNoValues) {
  const Batch batch = pack_sequences()(
      {sample_of({torch::ones({0, 4})}), sample_of({torch::ones({0, 4})})},
      {});
  EXPECT_TRUE(is_same(batch.inputs.at(0), longs({0, 0})));
  EXPECT_EQ(batch.inputs.at(1).sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(sample_of_row(batch.inputs[0], 0).numel(), 0);
}

TEST(PackSequences, DescribeTheRequiredLengths) {
  expect_error<c10::ValueError>(
      [] { offsets_of(torch::ones({2})); },
      {"[offsets_of] the lengths are [2] Float; expected [N] Long, as "
       "pack_sequences returns them in front of the values."});
  expect_error<c10::ValueError>(
      [] {
        sample_of_row(longs({1, 2}), 4);
      },
      {"[sample_of_row] the lengths add up to 3, and there are 4 rows; "
       "expected the same number."});
}

TEST(SampleDataset, RejectsACollateThatReturnsAWrongNumberOfRows) {
  const SampleList values_alone(
      texts(),
      [](c10::ArrayRef<Sample> samples, const BatchContext& context) {
        Batch batch = pack_sequences()(samples, context);
        batch.inputs.erase(batch.inputs.begin());
        return batch;
      });
  const std::string text = error_of<c10::ValueError>([&] {
    values_alone.get_batch({0, 1}, {});
  });
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "[SampleDataset] collate returned inputs of [3] Long for 2 samples; "
      "expected one row per sample in inputs[0]. Return a tensor with one row "
      "per sample first, such as the lengths of packed values.");
  expect_error<c10::ValueError>(
      [] { SampleList({}, Collate()); },
      {"[SampleDataset] collate is empty; expected a function. Omit it"});
}

TEST(SampleDataset, NamesTheSampleThatDoesNotFitInTheLoader) {
  const auto list = std::make_shared<SampleList>(
      texts(),
      pad_sequences({.inputs = {{.fixed_length = 2}}}));
  const DataLoader loader(list, {.batch_size = 3, .workers = 0});
  expect_error<DataError>(
      [&] { loader.epoch(0).next(); },
      {"inputs[0] of sample 0 is [3] Long, longer than fixed_length, 2"});
}

/// Sample i has i % 7 random numbers.
class Numbers final : public SampleDataset {
 public:
  using SampleDataset::SampleDataset;
  int64_t size() const override { return 40; }
  Sample get(int64_t index, const BatchContext& context) const override {
    SampleRng rng = context.rng(index);
    std::vector<float> numbers(index % 7);
    for (float& number : numbers) number = 1 + rng.uniform();
    return sample_of({torch::tensor(numbers)}, {torch::tensor(index)});
  }
};

TEST(SampleDataset, HasTheSameBatchesForAnyNumberOfWorkers) {
  for (const Collate& collate :
       {pad_sequences({.inputs = {{.mask = MaskPlace::input}}}),
        pack_sequences()}) {
    const auto loader = [&](int64_t workers) {
      return DataLoader(
          std::make_shared<Numbers>(collate),
          {.batch_size = 6,
           .shuffle = true,
           .training = true,
           .workers = workers});
    };
    std::vector<Batch> batches;
    for (const Batch& batch : loader(0)) batches.push_back(batch);
    ASSERT_EQ(batches.size(), 7u);
    size_t place = 0;
    for (const Batch& batch : loader(2)) {
      expect_same(batch, batches.at(place++));
      EXPECT_EQ(batch.size(), std::ssize(batch.indices));
    }
    EXPECT_EQ(place, batches.size());
    // Also from the middle of the epoch, as in a resumed run.
    auto rest = loader(2).epoch(0, 5);
    for (place = 5; place < batches.size(); ++place) {
      expect_same(*rest.next(), batches[place]);
    }
    EXPECT_FALSE(rest.next());
  }
}

TEST(SampleDataset, GivesARepeatedSampleDifferentRandomNumbers) {
  const auto numbers = std::make_shared<Numbers>(pad_sequences());
  const Batch batch = Subset(numbers, {6, 6}).get_batch({0, 1}, {});
  EXPECT_FALSE(torch::equal(batch.inputs[0][0], batch.inputs[0][1]));
}

TEST(SampleDataset, OfPackedSamplesCanBeConcatenated) {
  const auto numbers = std::make_shared<Numbers>(pack_sequences());
  const auto others = std::make_shared<SampleList>(
      std::vector<Sample>{sample_of({torch::ones({2})}, {torch::tensor(9)})},
      pack_sequences());
  const Batch batch = Concat({numbers, others}).get_batch({3, 40, 1}, {});
  EXPECT_TRUE(is_same(batch.inputs[0], longs({3, 2, 1})));
  EXPECT_EQ(batch.inputs[1].size(0), 6);
  EXPECT_TRUE(is_same(batch.inputs[1].slice(0, 3, 5), torch::ones({2})));
}

TEST(SampleDataset, OfRandomSamplesCanBeRecoveredFromItsBatches) {
  for_random_cases(50, [](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    const std::vector<torch::ScalarType> dtypes = {
        torch::kFloat,
        torch::kHalf,
        torch::kBFloat16,
        torch::kDouble,
        torch::kLong,
        torch::kByte,
        torch::kBool};
    const torch::ScalarType dtype = dtypes[rng.below(dtypes.size())];
    std::vector<int64_t> shape = {0};
    while (rng.below(2)) shape.push_back(static_cast<int64_t>(rng.below(4)));
    std::vector<Sample> samples(1 + rng.below(6));
    torch::manual_seed(seed);
    for (Sample& sample : samples) {
      shape[0] = static_cast<int64_t>(rng.below(6));
      sample.inputs = {
          torch::randint(0, 2, shape, torch::kLong).to(dtype),
          torch::tensor(shape[0])};
    }
    const auto multiple = static_cast<int64_t>(1 + rng.below(4));
    const Batch padded = pad_sequences(
        {.inputs = {
             {.value = 1,
              .multiple = multiple,
              .mask = MaskPlace::target}}})(samples, {});
    const Batch packed = pack_sequences()(samples, {});
    const Tensors parts = packed.inputs[1].split_with_sizes(
        {packed.inputs[0].const_data_ptr<int64_t>(),
         static_cast<size_t>(packed.size())});
    EXPECT_EQ(padded.inputs[0].size(1) % multiple, 0);
    for (size_t i = 0; i < samples.size(); ++i) {
      const torch::Tensor& tensor = samples[i].inputs[0];
      const int64_t length = tensor.size(0);
      const auto row = static_cast<int64_t>(i);
      const torch::Tensor padded_row = padded.inputs[0][row];
      EXPECT_TRUE(is_same(padded_row.narrow(0, 0, length), tensor));
      EXPECT_TRUE(padded_row.slice(0, length).eq(1).all().item<bool>());
      EXPECT_EQ(padded.targets[0][row].sum().item<int64_t>(), length);
      EXPECT_TRUE(
          padded.targets[0][row].slice(0, 0, length).all().item<bool>());
      EXPECT_TRUE(is_same(parts[i], tensor));
    }
  });
}

}  // namespace
}  // namespace tern::sample_dataset_test
