// A file for training made one that predicts: BatchNormalization and Dropout in inference mode, and what only training reads cut.
// All is decided on the file as it was read and applied while its bytes are copied: what has no edit keeps its bytes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontends/onnx/proto.h"

namespace epl::onnx {

// Nodes that behave otherwise in training than when the model predicts; those of functions and branches count once each.
struct TrainingParts {
  int batch_norms = 0, dropouts = 0;
  std::string text() const;   // "3 BatchNormalization and 1 Dropout in training mode", empty for none
};
TrainingParts training_parts(const File& file);

class InferenceEdits {
 public:
  // `base`: the first byte of the file that the messages below are views of. `loss` names an output that only training needs, or is
  // empty; the last output of a graph is never cut.
  static Result<InferenceEdits> of(const File& file, const char* base, std::string_view loss);

  // Appends the node as it is to be written, `field` being its whole field: nothing where it goes, and more nodes where a running
  // statistic that somebody reads needs one to give it.
  void node(std::string_view message, std::string_view field, std::string& out) const;
  void function(std::string_view message, std::string_view field, std::string& out) const;
  // Of the graph itself.
  bool cuts_input(std::string_view name) const { return unread_.contains(name); }
  bool cuts_initializer(std::string_view name) const { return unread_.contains(name); }
  bool cuts_output(std::string_view name) const { return outputs_.contains(name); }
  bool cuts_value_info(std::string_view name) const { return values_.contains(name); }

 private:
  friend class InferencePlanner;
  struct Edit {
    bool goes = false;
    bool inference_mode = false;                  // training_mode becomes 0
    size_t inputs = SIZE_MAX, outputs = SIZE_MAX;   // how many stay
    std::vector<std::pair<std::string_view, std::string_view>> copies;   // a value, and the name by which it is read
    bool inside = false;                          // a graph among its attributes has edits
  };

  void nodes(std::string_view message, uint32_t node_tag, std::string& out) const;
  void edited(std::string_view message, const Edit& edit, std::string& out) const;
  void attribute(std::string_view message, std::string_view field, const Edit& edit, std::string& out) const;

  const char* base_ = nullptr;
  std::unordered_map<size_t, Edit> edits_;        // by the byte at which the node's message begins
  std::unordered_set<std::string_view> unread_, outputs_, values_;
};

}  // namespace epl::onnx
