// What the uses of an initialiser tell of it, where its name and its numbers leave a doubt.
#pragma once

#include <string_view>
#include <unordered_set>

#include "frontends/onnx/model.h"

namespace epl::onnx {

// Initialisers that scale or shift the features of a layer or of an input, one number for each. They are learnt, though
// they may begin as evenly spaced numbers: a table of such numbers meets what is the same for all of them (a distance),
// or their probabilities.
std::unordered_set<std::string_view> scales_of_features(const OnnxModel& model);

// Initialisers whose products are seen through sines and cosines alone, both of them, or through cosines with a phase:
// a projection to random features and its phases, or frequencies. They are drawn once and not learnt.
std::unordered_set<std::string_view> random_features(const OnnxModel& model);

// Initialisers by which a loss inside the model weighs its terms, as BCEWithLogitsLoss(weight) does: what is averaged
// or summed to the model's number, of logarithms; the number may be scaled, and the sum of several.
std::unordered_set<std::string_view> weights_of_terms(const OnnxModel& model);

// Initialisers by which a model standardises what it is given, (x - mean) / std, or brings what it gives back to the
// numbers of its data, y std + mean, with names that say so. They are of the data, and not learnt.
std::unordered_set<std::string_view> statistics_of_data(const OnnxModel& model);

}  // namespace epl::onnx
