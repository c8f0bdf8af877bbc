// Turns a file for training into one for inference: BatchNormalization and Dropout in inference mode, and without what
// only training reads. All is decided on the file as it was read. save.cc applies it while it copies the bytes: what
// has no edit keeps its bytes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontends/onnx/proto.h"

namespace epl::onnx {

// Nodes that behave differently in training and in inference; those of functions and branches count once each.
struct TrainingParts {
  int batch_norms = 0, dropouts = 0;
  std::string text() const;  // "3 BatchNormalization and 1 Dropout in training mode", empty for none
};
TrainingParts training_parts(const File& file);

// What happens to a node.
struct NodeEdit {
  bool goes = false;
  bool inference_mode = false;                   // training_mode becomes 0
  size_t inputs = SIZE_MAX, outputs = SIZE_MAX;  // how many stay
  // Running statistics that are still read need a node that gives them: a value, and the name by which it is read.
  std::vector<std::pair<std::string_view, std::string_view>> copies;
  bool inside = false;  // a graph among its attributes has edits
};

class InferenceEdits {
 public:
  // `loss` names an output that only training needs, or is empty; the last output of a graph is never cut.
  static Result<InferenceEdits> of(const File& file, std::string_view loss);

  // Of the node whose message begins at byte `at` of the file; null for one that stays.
  const NodeEdit* node(size_t at) const {
    auto it = edits_.find(at);
    return it == edits_.end() ? nullptr : &it->second;
  }
  // Of the graph itself.
  bool cuts_input(std::string_view name) const { return unread_.contains(name); }
  bool cuts_initializer(std::string_view name) const { return unread_.contains(name); }
  bool cuts_output(std::string_view name) const { return outputs_.contains(name); }
  bool cuts_value_info(std::string_view name) const { return values_.contains(name); }

 private:
  friend class EditFinder;
  std::unordered_map<size_t, NodeEdit> edits_;  // by the byte at which the node's message begins
  std::unordered_set<std::string_view> unread_, outputs_, values_;
};

inline constexpr std::string_view training_mode = "training_mode";  // the attribute of BatchNormalization

}  // namespace epl::onnx
