// %% [markdown]
// # Training on a camera's frames
//
// Trains on the frames of a camera while it runs. One thread delivers frames,
// the network trains on the frames so far, and another thread predicts the
// newest frame with the network of the last epoch. Training ends when the
// camera stops. The camera is simulated: it films coins, keys and pens on a
// conveyor belt.

// %%
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <opencv2/imgproc.hpp>
#include <tern/tern.h>

#include "options.h"

// %% [markdown]
// ## The camera
//
// The camera is a thread that delivers a frame every few milliseconds. Each
// frame has a label: the kind of object on the conveyor belt.

// %%
constexpr int kSize = 48;
const std::vector<std::string> kClasses = {"coin", "key", "pen"};

struct Frame {
  cv::Mat image;  // BGR, kSize x kSize
  int64_t label = 0;
};

Frame film(std::mt19937& rng) {
  const auto random = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const auto color = [&](int low, int high) {
    return cv::Scalar(random(low, high), random(low, high), random(low, high));
  };
  Frame frame{cv::Mat(kSize, kSize, CV_8UC3, color(20, 110)), random(0, 2)};
  const cv::Point center(random(14, kSize - 15), random(14, kSize - 15));
  const cv::Scalar metal = color(130, 250);
  const double angle = random(0, 359) * 3.14159 / 180;
  const cv::Point end(
      center.x + static_cast<int>(12 * std::cos(angle)),
      center.y + static_cast<int>(12 * std::sin(angle)));
  if (frame.label == 0) {
    cv::circle(frame.image, center, random(7, 11), metal, cv::FILLED);
  } else {
    cv::line(frame.image, center, end, metal, 3);
    if (frame.label == 1) cv::circle(frame.image, center, 5, metal, 2);
  }
  cv::Mat noise(frame.image.size(), CV_8UC3);
  cv::randn(noise, 25, 12);
  cv::add(frame.image, noise, frame.image);
  return frame;
}

// %% [markdown]
// ## The frames so far
//
// The camera's thread adds frames, and the loader's threads draw random ones.
// Once the buffer holds `capacity` frames, a new frame replaces the oldest.

// %%
class FrameBuffer {
 public:
  explicit FrameBuffer(size_t capacity) : capacity_(capacity) {}

  void add(Frame frame) {
    const std::lock_guard lock(mutex_);
    if (frames_.size() < capacity_) {
      frames_.push_back(std::move(frame));
    } else {
      frames_[added_ % capacity_] = std::move(frame);
    }
    ++added_;
    has_frames_.notify_all();
  }

  void wait_for(size_t frames) {
    std::unique_lock lock(mutex_);
    has_frames_.wait(lock, [&] { return added_ >= frames; });
  }

  Frame draw(std::mt19937& rng) const {
    const std::lock_guard lock(mutex_);
    return frames_[rng() % frames_.size()];  // the pixels are not copied
  }

  Frame newest() const {
    const std::lock_guard lock(mutex_);
    return frames_[(added_ - 1) % frames_.size()];
  }

  std::vector<Frame> all() const {
    const std::lock_guard lock(mutex_);
    return frames_;
  }

 private:
  size_t capacity_, added_ = 0;
  std::vector<Frame> frames_;
  mutable std::mutex mutex_;
  std::condition_variable has_frames_;
};

// %% [markdown]
// ## A stream of random frames
//
// `StreamEpochs` turns the stream into a dataset: an epoch is a fixed number of
// samples, drawn from the frames that the buffer holds at that time. The buffer
// keeps its frames after the camera has stopped, so a pass never ends.

// %%
class RandomFrames final : public tern::StreamDataset {
 public:
  explicit RandomFrames(std::shared_ptr<const FrameBuffer> buffer)
      : buffer_(std::move(buffer)) {}

  std::unique_ptr<Pass> pass(const tern::BatchContext& context) const override {
    return std::make_unique<RandomPass>(buffer_, context.epoch);
  }

 private:
  class RandomPass final : public Pass {
   public:
    RandomPass(std::shared_ptr<const FrameBuffer> buffer, int64_t epoch)
        : buffer_(std::move(buffer)), rng_(static_cast<unsigned>(epoch)) {}

    std::optional<tern::Batch> next() override {
      const Frame frame = buffer_->draw(rng_);
      cv::Mat rgb;
      cv::cvtColor(frame.image, rgb, cv::COLOR_BGR2RGB);
      const torch::Tensor image =
          torch::from_blob(rgb.data, {1, kSize, kSize, 3}, torch::kByte)
              .clone();
      return tern::Batch{{image}, {torch::tensor({frame.label})}};
    }
    // Every draw is random, so there is nothing to skip.
    bool skip() override { return true; }

   private:
    std::shared_ptr<const FrameBuffer> buffer_;
    std::mt19937 rng_;
  };

  std::shared_ptr<const FrameBuffer> buffer_;
};

using SharedPredictor = std::shared_ptr<const tern::Predictor>;

int main(int argc, char** argv) try {
  int64_t frames = 3000, epoch_size = 2048;
  double fps = 100;
  tern::examples::Options app("Trains on a camera while it runs");
  app.add_number(
      "--frames",
      frames,
      100,
      10'000'000,
      "frames before the camera stops");
  app.add_number("--fps", fps, 1, 100'000, "frames per second");
  app.add_number(
      "--epoch-size",
      epoch_size,
      32,
      1'000'000,
      "samples per epoch");
  app.read(argc, argv);

  // %% [markdown]
  // ## Validation frames
  //
  // The first hundred frames become a dataset of images in memory, with the
  // same transforms as a dataset of files. They are not used for training.

  // %%
  std::mt19937 scene(42);
  std::vector<cv::Mat> images;
  std::vector<int64_t> labels;
  for (int i = 0; i < 100; ++i) {
    const Frame frame = film(scene);
    images.push_back(frame.image);
    labels.push_back(frame.label);
  }
  tern::DataBunch data = tern::ImageDataBunch::from_images(
      images,
      labels,
      {.valid_pct = 0.99, .workers = 0});
  data.classes = kClasses;

  // %%
  const auto buffer = std::make_shared<FrameBuffer>(2000);
  data.train = std::make_shared<tern::DataLoader>(
      std::make_shared<tern::StreamEpochs>(
          std::make_shared<RandomFrames>(buffer),
          epoch_size),
      tern::DataLoaderOptions{
          .batch_size = 32,
          .training = true,
          .workers = 1});

  std::atomic<bool> is_running = true;
  std::jthread camera([&] {
    for (int64_t i = 0; i < frames; ++i) {
      buffer->add(film(scene));
      std::this_thread::sleep_for(std::chrono::duration<double>(1 / fps));
    }
    is_running = false;
  });

  // %% [markdown]
  // ## Training and concurrent predictions
  //
  // After each epoch, the other thread receives a copy of the network for its
  // predictions. Training stops after the step during which the camera stops,
  // even in the middle of an epoch.

  // %%
  tern::Learner learn(
      data,
      tern::simple_cnn({3, 16, 32, 32, 3}, {.batch_norm = true}),
      {.metrics = {tern::accuracy()}, .seed = 1});
  std::atomic<SharedPredictor> newest;
  int64_t steps = 0;
  learn.add<tern::LambdaCallback>(
      {.on_batch_end =
           [&](tern::Learner& l) {
             if (!l.state().training) return;
             ++steps;
             if (!is_running) l.state().stop_training = true;
           },
       .on_epoch_end =
           [&](tern::Learner& l) {
             newest = std::make_shared<const tern::Predictor>(l.predictor());
           }});

  int64_t asked = 0, right = 0;
  std::jthread viewer([&] {
    while (is_running) {
      if (const SharedPredictor predictor = newest) {
        const Frame frame = buffer->newest();
        ++asked;
        right += predictor->predict(frame.image).label == kClasses[frame.label];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });

  buffer->wait_for(64);  // the first batch draws from these frames
  learn.fit(1000, 3e-3);
  camera.join();
  viewer.join();

  // %%
  const double accuracy = learn.validate().metrics.at(0).value;
  fmt::print(
      "{} frames, {} steps; correct: {} of {} live frames, {:.0f} % of the "
      "validation frames\n",
      frames,
      steps,
      right,
      asked,
      100 * accuracy);
  if (frames >= 3000 && accuracy < 0.9) {
    fmt::print(stderr, "error: the network has not learned the classes\n");
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
