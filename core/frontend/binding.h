// Whether what a host binds is there: before a model is bound, where a name that is misspelt would do nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/frontend/model.h"

namespace epl {

// Every name of the binding is an input or a symbolic dimension of the model, and every type that the host gave is that
// of its input; the error names the nearest. `also`: inputs that the model does not have itself, as a loss's target.
Status check_binding(const Binding& binding, const std::map<std::string, DType>& types, const Model& model,
                     const std::vector<std::string>& also);

}  // namespace epl
