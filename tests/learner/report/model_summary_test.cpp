#include "tern/learner/report/model_summary.h"

#include <tuple>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include "tern/learner/recorder.h"
#include "tern/tests/support/tiny.h"

namespace tern::model_summary_test {
namespace {

using namespace testing_support;  // NOLINT
using Sizes = std::vector<int64_t>;

TEST(ModelSummary, ListsTheLayersOfASequential) {
  Model model = torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
      torch::nn::ReLU(),
      torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Flatten(),
      torch::nn::Linear(8, 5));
  const ModelSummary summary = summarize(model, {torch::zeros({4, 3, 10, 10})});
  ASSERT_EQ(summary.layers.size(), 5u);
  const LayerSummary& conv = summary.layers[0];
  EXPECT_EQ(conv.name, "0");
  EXPECT_EQ(conv.kind, "Conv2d");
  EXPECT_EQ(conv.output, (Sizes{4, 8, 10, 10}));
  EXPECT_EQ(conv.parameters, 3 * 8 * 9 + 8);
  EXPECT_EQ(conv.multiply_adds, 4 * 8 * 10 * 10 * 27);
  EXPECT_EQ(summary.layers[1].kind, "ReLU");
  EXPECT_EQ(summary.layers[1].output, (Sizes{4, 8, 10, 10}));
  EXPECT_EQ(summary.layers[3].output, (Sizes{4, 8}));
  EXPECT_EQ(summary.layers[4].multiply_adds, 4 * 8 * 5);
  EXPECT_EQ(summary.parameters, 224 + 45);
  EXPECT_EQ(
      summary.multiply_adds,
      conv.multiply_adds + summary.layers[4].multiply_adds);
  EXPECT_EQ(summary.parameter_bytes, 4 * summary.parameters);
  // The outputs of conv, ReLU, pooling and linear; flatten returns a view.
  EXPECT_EQ(summary.activation_bytes, 4 * (2 * 3200 + 32 + 20));
}

// LibTorch has no hooks, so layers are identified by the parameters that the
// operations use.
struct OwnNetImpl : torch::nn::Module {
  OwnNetImpl() {
    first = register_module("first", torch::nn::Linear(2, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    second = register_module("second", torch::nn::Linear(6, 3));
    shift = register_parameter("shift", torch::zeros({3}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second(torch::relu(norm(first(x)))) + shift;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(OwnNet);

TEST(ModelSummary, FindsTheLayersOfACustomModule) {
  Model model = OwnNet();
  const ModelSummary summary = summarize(model, {torch::zeros({4, 2})});
  ASSERT_EQ(summary.layers.size(), 4u);
  EXPECT_EQ(summary.layers[0].kind, "OwnNet");  // because of its own parameter
  EXPECT_EQ(summary.layers[0].parameters, 3);
  EXPECT_EQ(summary.layers[1].name, "first");
  EXPECT_EQ(summary.layers[1].output, (Sizes{4, 6}));
  EXPECT_EQ(summary.layers[1].multiply_adds, 4 * 2 * 6);
  EXPECT_EQ(summary.layers[2].output, (Sizes{4, 6}));
  EXPECT_EQ(summary.layers[3].output, (Sizes{4, 3}));
}

struct RecurrentNetImpl : torch::nn::Module {
  RecurrentNetImpl() {
    lstm = register_module("lstm", torch::nn::LSTM(4, 8));
    last = register_module("last", torch::nn::Linear(8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(std::get<0>(lstm(x)));
  }
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(RecurrentNet);

TEST(Counted, UsesSingularAndPlural) {
  EXPECT_EQ(counted(1, "epoch"), "1 epoch");
  EXPECT_EQ(counted(0, "worker"), "0 workers");
  EXPECT_EQ(counted(2000, "batch"), "2,000 batches");
  EXPECT_EQ(counted(2, "class"), "2 classes");
}

TEST(ModelSummary, CountsAnLstmOrReportsThatItDoesNot) {
  Model model = RecurrentNet();
  const ModelSummary summary = summarize(model, {torch::zeros({3, 5, 4})});
  ASSERT_EQ(summary.layers[0].kind, "LSTM");
  const bool is_counted = summary.layers[0].multiply_adds > 0;
  const bool is_named =
      summary.to_string().find(
          "not counted: the multiply-adds of lstm (LSTM)") != std::string::npos;
  EXPECT_NE(is_counted, is_named) << summary.to_string();
}

TEST(ModelSummary, LeavesTheModelAndTheRandomStateUnchanged) {
  Model model = point_net();
  model.train();
  const torch::Tensor mean = model.buffers().at(0).tensor.clone();
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand({3});
  torch::manual_seed(5);
  summarize(model, {torch::ones({4, 2})});
  EXPECT_TRUE(model.is_training());
  EXPECT_TRUE(torch::equal(model.buffers().at(0).tensor, mean));
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
}

TEST(ModelSummary, CountsFrozenParametersAndPrintsATable) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"3"}).freeze();
  const ModelSummary summary = learn.summary();
  EXPECT_EQ(summary.inputs, (std::vector<Sizes>{{32, 2}}));
  EXPECT_EQ(summary.parameters, 48 + 32 + 34);
  EXPECT_EQ(summary.trainable, 32 + 34);  // BatchNorm is still trained
  const std::string text = summary.to_string();
  for (const char* word :
       {"layer",
        "BatchNorm1d",
        "[32, 16]",
        "frozen",
        "114 parameters",
        "66 of them trained",
        "input [32, 2]"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
  }
  learn.fit(1);
  learn.to_fp16().summary();  // converts the inputs as the training loop does
}

TEST(ModelSummary, LeavesTheStepOfAFitUnchanged) {
  struct Summarizes : Callback {
    void on_batch_end(Learner& learn) override {
      if (!learn.state().training) return;
      const int64_t batch = learn.state().batch;
      const torch::Tensor inputs = learn.state().batch_data.inputs.at(0);
      EXPECT_EQ(learn.summary().inputs, (std::vector<Sizes>{{32, 2}}));
      EXPECT_EQ(learn.state().batch, batch);
      EXPECT_TRUE(learn.state().batch_data.inputs.at(0).is_same(inputs));
    }
  };
  Learner learn(point_data(), point_net(), quiet());
  learn.add<Summarizes>().fit(1);
  EXPECT_EQ(learn.recorder().losses().size(), learn.data().train->size());
}

TEST(ModelSummary, ReportsAnErrorOfTheModel) {
  Model model = torch::nn::Sequential(torch::nn::Linear(3, 2));
  EXPECT_THROW(summarize(model, {torch::ones({4, 2})}), c10::Error);
}

TEST(ModelSummary, FormatsNumbersReadably) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1500), "1.5 kB");
  EXPECT_EQ(bytes_text(2'000'000'000), "2.00 GB");
}

}  // namespace
}  // namespace tern::model_summary_test
