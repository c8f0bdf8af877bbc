// The attributes of cuDNN's descriptors that the stand-in knows, by number, type and count, from the manual.
#include "tests/cuda/machine/dnn/objects.h"

#include <algorithm>

namespace epl::cuda_dnn {
namespace {

constexpr AttributeRow kRows[] = {
    {kConvolution, 100, kAsType, 1, true, "CONVOLUTION_COMP_TYPE"},
    {kConvolution, 101, kAsConvolutionMode, 1, true, "CONVOLUTION_CONV_MODE"},
    {kConvolution, 102, kAsInteger, kMostDimensions, true, "CONVOLUTION_DILATIONS"},
    {kConvolution, 103, kAsInteger, kMostDimensions, true, "CONVOLUTION_FILTER_STRIDES"},
    {kConvolution, 104, kAsInteger, kMostDimensions, true, "CONVOLUTION_POST_PADDINGS"},
    {kConvolution, 105, kAsInteger, kMostDimensions, true, "CONVOLUTION_PRE_PADDINGS"},
    {kConvolution, 106, kAsInteger, 1, true, "CONVOLUTION_SPATIAL_DIMS"},
    {kSuggestion, 200, kAsSuggestionMode, 1, true, "ENGINEHEUR_MODE"},
    {kSuggestion, 201, kAsDescriptor, 1, true, "ENGINEHEUR_OPERATION_GRAPH"},
    {kPlan, 400, kAsHandle, 1, true, "EXECUTION_PLAN_HANDLE"},
    {kPlan, 401, kAsDescriptor, 1, true, "EXECUTION_PLAN_ENGINE_CONFIG"},
    {kForward, 700, kAsFloat, 1, true, "CONVOLUTION_FORWARD_ALPHA"},
    {kForward, 701, kAsFloat, 1, true, "CONVOLUTION_FORWARD_BETA"},
    {kForward, 702, kAsDescriptor, 1, true, "CONVOLUTION_FORWARD_CONV_DESC"},
    {kForward, 703, kAsDescriptor, 1, true, "CONVOLUTION_FORWARD_W"},
    {kForward, 704, kAsDescriptor, 1, true, "CONVOLUTION_FORWARD_X"},
    {kForward, 705, kAsDescriptor, 1, true, "CONVOLUTION_FORWARD_Y"},
    {kGradInput, 706, kAsFloat, 1, true, "CONVOLUTION_BWD_DATA_ALPHA"},
    {kGradInput, 707, kAsFloat, 1, true, "CONVOLUTION_BWD_DATA_BETA"},
    {kGradInput, 708, kAsDescriptor, 1, true, "CONVOLUTION_BWD_DATA_CONV_DESC"},
    {kGradInput, 709, kAsDescriptor, 1, true, "CONVOLUTION_BWD_DATA_W"},
    {kGradInput, 710, kAsDescriptor, 1, true, "CONVOLUTION_BWD_DATA_DX"},
    {kGradInput, 711, kAsDescriptor, 1, true, "CONVOLUTION_BWD_DATA_DY"},
    {kGradWeight, 712, kAsFloat, 1, true, "CONVOLUTION_BWD_FILTER_ALPHA"},
    {kGradWeight, 713, kAsFloat, 1, true, "CONVOLUTION_BWD_FILTER_BETA"},
    {kGradWeight, 714, kAsDescriptor, 1, true, "CONVOLUTION_BWD_FILTER_CONV_DESC"},
    {kGradWeight, 715, kAsDescriptor, 1, true, "CONVOLUTION_BWD_FILTER_DW"},
    {kGradWeight, 716, kAsDescriptor, 1, true, "CONVOLUTION_BWD_FILTER_X"},
    {kGradWeight, 717, kAsDescriptor, 1, true, "CONVOLUTION_BWD_FILTER_DY"},
    {kGraph, 800, kAsHandle, 1, true, "OPERATIONGRAPH_HANDLE"},
    {kGraph, 801, kAsDescriptor, 1, true, "OPERATIONGRAPH_OPS"},
    {kTensor, 900, kAsInteger, 1, true, "TENSOR_BYTE_ALIGNMENT"},
    {kTensor, 901, kAsType, 1, true, "TENSOR_DATA_TYPE"},
    {kTensor, 902, kAsInteger, kMostDimensions, true, "TENSOR_DIMENSIONS"},
    {kTensor, 903, kAsInteger, kMostDimensions, true, "TENSOR_STRIDES"},
    {kTensor, 906, kAsInteger, 1, true, "TENSOR_UNIQUE_ID"},
    {kPack, 1000, kAsInteger, 64, true, "VARIANT_PACK_UNIQUE_IDS"},
    {kPack, 1001, kAsPointer, 64, true, "VARIANT_PACK_DATA_POINTERS"},
    {kPack, 1003, kAsPointer, 1, true, "VARIANT_PACK_WORKSPACE"},
};

}  // namespace

std::span<const AttributeRow> attribute_rows() { return kRows; }

Objects& Objects::get() {
  static auto* const all = new Objects;  // a host's threads may call until the very end
  return *all;
}

Object* Objects::make(Kind kind) {
  Object* made = all_.emplace_back(std::make_unique<Object>()).get();
  made->kind = kind;
  alive_.insert(made);
  return made;
}

Object& Objects::at(const void* object, const char* what) const {
  const auto found = std::find(alive_.begin(), alive_.end(), object);
  require(found != alive_.end(), kBadParameter, std::string(what) + " is none, or one that was destroyed");
  return **found;
}

const Object& Objects::at(const void* object, Kind kind, const char* what) const {
  const Object& found = at(object, what);
  require(found.kind == kind, kBadParameter, std::string(what) + " is a descriptor of another kind");
  require(kind == kHandle || found.finalized, kNotFinalized, std::string(what) + " is not finalized");
  return found;
}

void Objects::destroy(void* object) { alive_.erase(&at(object, "what is destroyed")); }

size_t bytes_of(AttributeType type) {
  return type == kAsHandle || type == kAsInteger || type == kAsPointer || type == kAsDescriptor ? 8 : 4;
}

const AttributeRow& attribute_row(const Object& object, int attribute, int type) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const AttributeRow& one) {
    return one.kind == object.kind && one.number == attribute;
  });
  require(row != std::end(kRows), kBadParameter,
          "attribute " + std::to_string(attribute) + " is none of descriptors of kind " + std::to_string(object.kind) +
              " that this machine knows");
  require(row->type == type, kAttributeType,
          std::string("attribute ") + row->name + " has type " + std::to_string(row->type) + " and is given type " +
              std::to_string(type));
  return *row;
}

}  // namespace epl::cuda_dnn
