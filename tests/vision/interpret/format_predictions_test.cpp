#include "tern/vision/interpret/format_predictions.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/decode_predictions.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern::format_predictions_test {
namespace {

using Infos = std::vector<OutputInfo>;

FilePrediction prediction_of(
    const std::string& path,
    const Tensors& outputs,
    const Infos& infos) {
  return {.path = path, .prediction = decode(outputs, infos)};
}

std::string
formatted(const Tensors& outputs, const Infos& infos, PredictionFormat format) {
  return format_predictions(
      {prediction_of("a.png", outputs, infos)},
      infos,
      format);
}

const Infos kClass = {
    {.kind = TargetKind::category,
     .names = {"cat", "dog"},
     .activation = Activation::softmax}};
const Tensors kCat = {torch::tensor({0.75f, 0.25f})};

TEST(FormatPredictions, AClassIsWrittenWithAllProbabilities) {
  EXPECT_EQ(
      formatted(kCat, kClass, PredictionFormat::text),
      "a.png: cat (0.750)\n");
  EXPECT_EQ(
      formatted(kCat, kClass, PredictionFormat::csv),
      "path,label,cat,dog,error\na.png,cat,0.75,0.25,\n");
  EXPECT_EQ(
      formatted(kCat, kClass, PredictionFormat::json),
      R"({"path":"a.png","kind":"category","label":"cat",)"
      R"("probabilities":{"cat":0.75,"dog":0.25}})"
      "\n");
}

TEST(FormatPredictions, BinaryOutputsAreWrittenWithBothProbabilities) {
  Infos binary = kClass;
  binary[0].activation = Activation::sigmoid;
  EXPECT_EQ(
      formatted({torch::tensor({0.75f})}, binary, PredictionFormat::csv),
      "path,label,cat,dog,error\na.png,dog,0.25,0.75,\n");
}

TEST(FormatPredictions, LabelsAboveTheThresholdAreWritten) {
  const Infos labels = {
      {.kind = TargetKind::multi_category,
       .names = {"haze", "road", "water"},
       .threshold = 0.4,
       .activation = Activation::sigmoid}};
  const Tensors output = {torch::tensor({0.5f, 0.75f, 0.25f})};
  EXPECT_EQ(
      formatted(output, labels, PredictionFormat::text),
      "a.png: haze (0.500), road (0.750)\n");
  EXPECT_EQ(
      formatted(output, labels, PredictionFormat::csv),
      "path,label,haze,road,water,error\n"
      "a.png,\"haze, road\",0.5,0.75,0.25,\n");
  EXPECT_EQ(
      formatted(output, labels, PredictionFormat::json),
      R"({"path":"a.png","kind":"multi_category","labels":["haze","road"],)"
      R"("probabilities":{"haze":0.5,"road":0.75,"water":0.25}})"
      "\n");
}

TEST(FormatPredictions, NumbersAreWrittenWithTheirNames) {
  const Infos numbers = {{.kind = TargetKind::number, .names = {"age"}}};
  const Tensors output = {torch::tensor({41.5f, -2.f})};
  EXPECT_EQ(
      formatted(output, numbers, PredictionFormat::text),
      "a.png: age 41.5, -2\n");
  EXPECT_EQ(
      formatted(output, numbers, PredictionFormat::csv),
      "path,age,number 1,error\na.png,41.5,-2,\n");
  EXPECT_EQ(
      formatted(output, numbers, PredictionFormat::json),
      R"({"path":"a.png","kind":"number","numbers":{"age":41.5,"number 1":-2}})"
      "\n");
}

TEST(FormatPredictions, PointsAreWrittenWithTheirCoordinates) {
  const Infos points = {{.kind = TargetKind::points, .names = {"nose"}}};
  const Tensors output = {torch::tensor({{1.5f, 2.f}, {30.f, 40.25f}})};
  EXPECT_EQ(
      formatted(output, points, PredictionFormat::text),
      "a.png: nose (1.5, 2.0), point 1 (30.0, 40.2)\n");
  EXPECT_EQ(
      formatted(output, points, PredictionFormat::csv),
      "path,nose x,nose y,point 1 x,point 1 y,error\n"
      "a.png,1.5,2,30,40.25,\n");
  EXPECT_EQ(
      formatted(output, points, PredictionFormat::json),
      R"({"path":"a.png","kind":"points","points":{"nose":[1.5,2],)"
      R"("point 1":[30,40.25]}})"
      "\n");
}

TEST(FormatPredictions, DetectionsAreWrittenAsOneRowPerBox) {
  const Infos boxes = {
      {.kind = TargetKind::boxes, .names = {"cat", "dog"}, .threshold = 0.3}};
  const Tensors output = {
      torch::tensor({{1.f, 2.f, 3.f, 4.f}, {5.f, 6.f, 7.5f, 8.f}}),
      torch::tensor({0.75f, 0.5f}),
      torch::tensor({1, 0})};
  EXPECT_EQ(
      formatted(output, boxes, PredictionFormat::text),
      "a.png: dog (0.750), cat (0.500)\n");
  EXPECT_EQ(
      formatted(output, boxes, PredictionFormat::csv),
      "path,label,score,x1,y1,x2,y2,error\n"
      "a.png,dog,0.75,1,2,3,4,\n"
      "a.png,cat,0.5,5,6,7.5,8,\n");
  EXPECT_EQ(
      formatted(output, boxes, PredictionFormat::json),
      R"({"path":"a.png","kind":"boxes","boxes":[)"
      R"({"label":"dog","score":0.75,"box":[1,2,3,4]},)"
      R"({"label":"cat","score":0.5,"box":[5,6,7.5,8]}]})"
      "\n");
  // A file without boxes has a row too.
  const Tensors none = {
      torch::zeros({1, 4}),
      torch::zeros({1}),
      torch::full({1}, -1, torch::kLong)};
  EXPECT_EQ(
      formatted(none, boxes, PredictionFormat::csv),
      "path,label,score,x1,y1,x2,y2,error\na.png,,,,,,,\n");
}

TEST(FormatPredictions, AMaskIsWrittenWithClassFractionsNamesAndColors) {
  const Infos mask = {
      {.kind = TargetKind::mask,
       .names = {"sky", "road"},
       .activation = Activation::softmax}};
  torch::Tensor output = torch::zeros({3, 2, 4});
  output[1] = 0.6;  // road
  output[0][0][0] = 1;
  output[2][1][3] = 1;
  EXPECT_EQ(
      formatted({output}, mask, PredictionFormat::text),
      "a.png: road (0.750), sky (0.125), class 2 (0.125)\n");
  EXPECT_EQ(
      formatted({output}, mask, PredictionFormat::csv),
      "path,label,sky,road,class 2,error\na.png,road,0.125,0.75,0.125,\n");
  const torch::Tensor colors = mask_colors(3);
  const auto* rgb = colors.const_data_ptr<uint8_t>() + 3;
  const std::string json = formatted({output}, mask, PredictionFormat::json);
  EXPECT_TRUE(json.starts_with(
      R"({"path":"a.png","kind":"mask","height":2,"width":4,"classes":[{)"))
      << json;
  EXPECT_NE(
      json.find(fmt::format(
          R"({{"name":"road","color":"#{:02x}{:02x}{:02x}","share":0.75}})",
          rgb[0],
          rgb[1],
          rgb[2])),
      std::string::npos)
      << json;
}

TEST(FormatPredictions, OverlappingMasksAreWrittenWithTheFractionOfEachClass) {
  const Infos mask = {
      {.kind = TargetKind::mask,
       .names = {"hair", "skin"},
       .activation = Activation::sigmoid}};
  torch::Tensor output = torch::full({2, 2, 2}, 0.9f);
  output[1][0][0] = 0.1;
  EXPECT_EQ(
      formatted({output}, mask, PredictionFormat::text),
      "a.png: hair (1.000), skin (0.750)\n");
}

TEST(FormatPredictions, AllOutputsAreWritten) {
  Infos both = kClass;
  both.push_back({.kind = TargetKind::number, .names = {"age"}});
  const Tensors outputs = {kCat[0], torch::tensor({7.f})};
  EXPECT_EQ(
      formatted(outputs, both, PredictionFormat::text),
      "a.png: cat (0.750); age 7\n");
  EXPECT_EQ(
      formatted(outputs, both, PredictionFormat::csv),
      "path,label,cat,dog,age,error\na.png,cat,0.75,0.25,7,\n");
  EXPECT_EQ(
      formatted(outputs, both, PredictionFormat::json),
      R"({"path":"a.png","outputs":[{"kind":"category","label":"cat",)"
      R"("probabilities":{"cat":0.75,"dog":0.25}},)"
      R"({"kind":"number","numbers":{"age":7}}]})"
      "\n");
}

TEST(FormatPredictions, BadFilesAreWrittenWithTheirError) {
  const std::vector<FilePrediction> files = {
      {.path = "bad, \"very\".png", .error = "is damaged"},
      prediction_of("a.png", kCat, kClass)};
  EXPECT_EQ(
      format_predictions(files, kClass, PredictionFormat::text),
      "bad, \"very\".png: error: is damaged\na.png: cat (0.750)\n");
  EXPECT_EQ(
      format_predictions(files, kClass, PredictionFormat::csv),
      "path,label,cat,dog,error\n"
      "\"bad, \"\"very\"\".png\",,,,is damaged\na.png,cat,0.75,0.25,\n");
  EXPECT_EQ(
      format_predictions({files[0]}, kClass, PredictionFormat::json),
      R"({"path":"bad, \"very\".png","error":"is damaged"})"
      "\n");
}

}  // namespace
}  // namespace tern::format_predictions_test
