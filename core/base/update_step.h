// What a step of each optimizer does to one element. A formula is written once, for any kind of number N: terms of a
// scalar expression, floats, vectors of floats. N has + - * / of two, `double * N`, `double / N`, `double - N`,
// `N + double`, and root(N). A formula changes the parameter and its states in place; its scalars are those of the op,
// the rate first. Formulas are those of torch.optim (PyTorch 2.15: SGD, Adam, AdamW, RMSprop, Adagrad).
#pragma once

namespace epl::update {

// The gradient with the coupled (L2) weight decay added.
template <class N> N decayed(N gradient, N parameter, double weight_decay) {
  return weight_decay == 0 ? gradient : gradient + weight_decay * parameter;
}

// A step along the gradient over the root of its squares, as RMSprop and Adagrad gather them.
template <class N> N scaled(N parameter, N gradient, N squares, N rate, double epsilon) {
  return parameter - rate * (gradient / (root(squares) + epsilon));
}

struct Sgd {
  static constexpr int states = 0, scalars = 1;
  double weight_decay;
  template <class N> void operator()(N& parameter, N gradient, N*, const N* scalar) const {
    parameter = parameter - scalar[0] * decayed(gradient, parameter, weight_decay);
  }
};

struct Momentum {
  static constexpr int states = 1, scalars = 2;
  double momentum, weight_decay;
  bool nesterov;
  template <class N> void operator()(N& parameter, N gradient, N* state, const N* scalar) const {
    const N g = decayed(gradient, parameter, weight_decay);
    state[0] = momentum * state[0] + scalar[1] * g;
    const N direction = nesterov ? g + momentum * state[0] : state[0];
    parameter = parameter - scalar[0] * direction;
  }
};

struct Rmsprop {
  static constexpr int states = 1, scalars = 1;
  double alpha, epsilon, weight_decay;
  template <class N> void operator()(N& parameter, N gradient, N* state, const N* scalar) const {
    const N g = decayed(gradient, parameter, weight_decay);
    state[0] = alpha * state[0] + (1 - alpha) * (g * g);
    parameter = scaled(parameter, g, state[0], scalar[0], epsilon);
  }
};

struct Adagrad {
  static constexpr int states = 1, scalars = 1;
  double epsilon, weight_decay;
  template <class N> void operator()(N& parameter, N gradient, N* state, const N* scalar) const {
    const N g = decayed(gradient, parameter, weight_decay);
    state[0] = state[0] + g * g;
    parameter = scaled(parameter, g, state[0], scalar[0], epsilon);
  }
};

// Adam (Kingma and Ba 2015); `decoupled` is AdamW (Loshchilov and Hutter 2019). States: the mean and the square.
// Scalars: the rate and two corrections.
template <bool decoupled> struct AdamStep {
  static constexpr int states = 2, scalars = 3;
  double beta1, beta2, epsilon, weight_decay;
  template <class N> void operator()(N& parameter, N gradient, N* state, const N* scalar) const {
    N w = parameter, g = gradient;
    if (!decoupled) {
      g = decayed(g, w, weight_decay);
    } else if (weight_decay != 0) {
      w = w * (1 - weight_decay * scalar[0]);
    }
    state[0] = state[0] + (1 - beta1) * (g - state[0]);
    state[1] = beta2 * state[1] + (1 - beta2) * (g * g);
    const N spread = root(state[1]) * (1 / root(scalar[2])) + epsilon;
    parameter = w - (scalar[0] / scalar[1]) * (state[0] / spread);
  }
};
using Adam = AdamStep<false>;
using Adamw = AdamStep<true>;

}  // namespace epl::update
