// Every function of the header, by its own type: NULL for each argument, and handles of another type, are errors that
// leave the places for handles NULL, and never a crash. The list of functions is read from the header, so a new one is
// tried by itself.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "include/epl.h"

namespace {

template <class T>
inline constexpr bool is_handle =
    std::is_same_v<T, epl_error> || std::is_same_v<T, epl_text> || std::is_same_v<T, epl_engine> ||
    std::is_same_v<T, epl_model> || std::is_same_v<T, epl_trainer> || std::is_same_v<T, epl_strategy> ||
    std::is_same_v<T, epl_plan> || std::is_same_v<T, epl_session> || std::is_same_v<T, epl_dataset> ||
    std::is_same_v<T, epl_tensor> || std::is_same_v<T, epl_cancel> || std::is_same_v<T, epl_evaluation> ||
    std::is_same_v<T, epl_store> || std::is_same_v<T, epl_feed> || std::is_same_v<T, epl_event> ||
    std::is_same_v<T, epl_predictor> || std::is_same_v<T, epl_folder_lock> || std::is_same_v<T, epl_job>;

// One live handle of two types: where a function wants another, it gets one of these.
struct World {
  World() {
    EXPECT_EQ(epl_engine_create(nullptr, &engine), nullptr);
    EXPECT_EQ(epl_cancel_create(engine, &cancel), nullptr);
  }
  ~World() {
    epl_cancel_destroy(cancel);
    epl_engine_destroy(engine);
  }
  epl_engine* engine = nullptr;
  epl_cancel* cancel = nullptr;
};

enum class Handles { null, foreign };

// What a function is called with: places that must be NULL afterwards, zeros, and for handles what is asked for.
template <class T> class Argument {
 public:
  using Target = std::remove_const_t<std::remove_pointer_t<T>>;
  static constexpr bool is_pointer = std::is_pointer_v<T>;
  // An array of handles that is read, the inputs of a step, is none.
  static constexpr bool is_place =
      is_pointer && std::is_pointer_v<Target> && !std::is_const_v<std::remove_pointer_t<T>>;
  static constexpr bool is_object = is_pointer && !std::is_pointer_v<Target> && !is_handle<Target> &&
                                    !std::is_same_v<Target, char> && !std::is_void_v<Target> &&
                                    !std::is_function_v<Target>;

  T given(World& world, Handles handles) {
    if constexpr (is_place) {
      place_ = untouched();
      return &place_;
    } else if constexpr (is_object) {
      std::memset(static_cast<void*>(&object_), 0, sizeof object_);
      return &object_;
    } else if constexpr (is_pointer && is_handle<Target>) {
      // An engine where none is wanted, else a token.
      void* other =
          std::is_same_v<Target, epl_engine> ? static_cast<void*>(world.cancel) : static_cast<void*>(world.engine);
      return handles == Handles::foreign ? static_cast<T>(other) : nullptr;
    } else if constexpr (std::is_same_v<T, const char*>) {
      return "x";
    } else if constexpr (std::is_same_v<T, size_t>) {
      return 1;  // of the text "x", of one place
    } else {
      return T{};
    }
  }
  bool left_alone() const {
    if constexpr (is_place) return place_ == untouched();
    return false;
  }
  // What a call that works has made: an engine needs nothing to be made of.
  void give_back() {
    if constexpr (std::is_same_v<T, epl_engine**>) {
      if (place_ != untouched()) epl_engine_destroy(std::exchange(place_, nullptr));  // NULL was given in its stead
    }
  }

 private:
  static auto untouched() {
    if constexpr (is_place) return reinterpret_cast<Target>(0xdead);
  }
  std::conditional_t<is_place, Target, char> place_{};
  std::conditional_t<is_object, Target, char> object_{};
};

// `without`: the argument that is NULL; beyond the last one, none.
template <class R, class... A, size_t... I>
void call(const char* name, R (*function)(A...), World& world, Handles handles, size_t without,
          std::index_sequence<I...>) {
  std::tuple<Argument<A>...> arguments;
  const auto given = [&]<size_t i>() {
    using T = std::tuple_element_t<i, std::tuple<A...>>;
    T value = std::get<i>(arguments).given(world, handles);
    if constexpr (std::is_pointer_v<T>) {
      if (i == without) value = nullptr;
    }
    return value;
  };
  if constexpr (std::is_same_v<R, epl_error*>) {
    epl_error* error = function(given.template operator()<I>()...);
    constexpr bool takes_handle =
        (... || (std::is_pointer_v<A> && is_handle<std::remove_const_t<std::remove_pointer_t<A>>>));
    if (takes_handle) {
      EXPECT_NE(error, nullptr) << name << " without argument " << without;
    }
    if (takes_handle && handles == Handles::foreign && without >= sizeof...(A)) {
      EXPECT_TRUE(epl_error_code(error) == EPL_ERROR_MISUSE || epl_error_code(error) == EPL_ERROR_INVALID_ARGUMENT)
          << name << ": " << epl_error_message(error, nullptr);
    }
    // Only of structs, which only C and C++ fill in, does a message have C's names.
    const std::string_view message = error == nullptr ? "" : epl_error_message(error, nullptr);
    EXPECT_TRUE(message.find("epl_") == message.npos || message.find("struct_size") != message.npos)
        << name << ": " << message;
    if (error != nullptr) {
      EXPECT_FALSE((... || (I != without && std::get<I>(arguments).left_alone())))
          << name << " leaves a handle alone, without argument " << without;
    }
    (..., std::get<I>(arguments).give_back());
    epl_error_destroy(error);
  } else {
    function(given.template operator()<I>()...);
  }
}

template <class R, class... A> void try_function(const char* name, R (*function)(A...), World& world) {
  // The engine's own functions take the world's engine and would work with it; what is destroyed is not ours to give.
  const bool destroys = std::strstr(name, "_destroy") != nullptr;
  for (size_t without = 0; without <= sizeof...(A); ++without) {
    call(name, function, world, Handles::null, without, std::index_sequence_for<A...>());
    if (!destroys || without == sizeof...(A))
      call(name, function, world, Handles::foreign, without, std::index_sequence_for<A...>());
  }
}

TEST(EveryFunction, RefusesNullAndForeignHandles) {
  {
    World world;
    int count = 0;
#define EPL_FALLIBLE(name) ++count, try_function(#name, &name, world);
#define EPL_OTHER(name) ++count, try_function(#name, &name, world);
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
    EXPECT_GE(count, 96);
    // Nothing of this has taken the world away.
    epl_cancel* another = nullptr;
    EXPECT_EQ(epl_cancel_create(world.engine, &another), nullptr);
    epl_cancel_destroy(another);
  }
  EXPECT_EQ(epl_live_handles(), 0);
}

}  // namespace
