// Whether a function pointer of ours takes what a function of NVIDIA's header takes: parameters of the same number,
// size and kind.
#pragma once

#include <type_traits>

namespace epl::cuda {

template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <> inline constexpr bool alike<void, void> = true;
template <class Ours, class Theirs> constexpr bool same = false;
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool same<R (*)(A...), S (*)(B...)> = alike<R, S> && (alike<A, B> && ...);

}  // namespace epl::cuda
