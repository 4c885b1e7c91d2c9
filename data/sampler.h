#pragma once

#include <cstdint>
#include <vector>

namespace tern {

/// Says in which order an epoch visits the samples. Stateless: the order is a
/// function of (seed, epoch), so that a run can be resumed anywhere in it.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// How many samples one epoch visits.
  virtual int64_t size() const = 0;

  /// The samples of this epoch, in order; `size()` indices.
  virtual std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const = 0;
};

/// 0, 1, ..., size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  int64_t size_;
};

/// Every sample once, in an order of its own for each epoch.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  int64_t size_;
};

/// Draws with replacement: sample i comes with probability weights[i] / sum.
/// As torch.utils.data.WeightedRandomSampler.
class WeightedSampler final : public Sampler {
 public:
  /// \param weights      One per sample, finite, >= 0, not all 0.
  /// \param num_samples  Draws an epoch; 0: as many as there are weights.
  /// \throws c10::ValueError otherwise, naming the weight.
  explicit WeightedSampler(
      const std::vector<double>& weights,
      int64_t num_samples = 0);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;

 private:
  std::vector<double> cumulative_;
  int64_t num_samples_;
};

}  // namespace tern
