// Whether a function pointer of ours takes what a function of NVIDIA's header takes: parameters of the same number,
// size and kind.
#pragma once

#include <type_traits>

namespace epl::cuda {

template <class T> constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Floats are not integers, and signed ones not unsigned. Whether an enumeration of C is signed is the compiler's
// choice: an integer of its size stands for it.
template <class A, class B>
constexpr bool alike_numbers = sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
                               (std::is_enum_v<A> || std::is_enum_v<B> || std::is_signed_v<A> == std::is_signed_v<B>);

// What is pointed at. A handle points at a struct that either side names by itself, or at void.
template <class A, class B> constexpr bool alike_targets() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return alike_targets<std::remove_cv_t<std::remove_pointer_t<A>>, std::remove_cv_t<std::remove_pointer_t<B>>>();
  } else if constexpr (is_number<A> && is_number<B>) {
    return alike_numbers<A, B>;
  } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return std::is_void_v<A> || std::is_void_v<B>;
  } else {
    return !is_number<A> && !is_number<B>;
  }
}

template <class A, class B> constexpr bool alike() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return alike_targets<A, B>();
  } else if constexpr (is_number<A> && is_number<B>) {
    return alike_numbers<A, B>;
  } else {
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B);
  }
}

template <class Ours, class Theirs> constexpr bool same = false;
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool same<R (*)(A...), S (*)(B...)> = alike<R, S>() && (alike<A, B>() && ...);

}  // namespace epl::cuda
