// The effect of an add on one element: the formulas of the CPU rules, operation by operation. `numbers` are the rule's
// parameters, computed by the host in double precision.

struct Numbers { double at[NUMBERS]; };

// Factors derived from a row's number of updates, for rules that depend on it: computed once per row. There are up to two, and
// each rule chooses what they mean; the names are those of adam's.
struct Scale { State rate, root; };
static_assert(sizeof(Scale) == SCALES * sizeof(State), "SCALES in formula.rs is the number of these factors");

__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }
__device__ inline float with_sign(float x, float sign) { return copysignf(x, sign); }
__device__ inline double with_sign(double x, double sign) { return copysign(x, sign); }

// The base of rules that do not depend on the number of updates. The others declare COUNTS_STEPS as true, derive their factors in
// `at_step`, and store and restore them with `scale` and `rescale`; or they derive from such a rule, as adamax does from adam, and
// hide what differs: `update`, and `at_step` if the factors differ.
struct Stepless {
    static const bool COUNTS_STEPS = false;
    __device__ void at_step(Count) {}
};

// Rules without state. The sign determines whether a delta is added or subtracted.
struct Add : Stepless {
    static const int PLANES = 0, SIGN = 1;
    __device__ Add(const Numbers&) {}
    __device__ State update(State value, State*, State delta) const { return value + delta; }
};

struct Sgd : Stepless {
    static const int PLANES = 0, SIGN = -1;
    __device__ Sgd(const Numbers&) {}
    __device__ State update(State value, State*, State delta) const { return value - delta; }
};

#ifndef INTEGER // only these two have a meaning for integers

struct Momentum : Stepless {
    static const int PLANES = 1;
    State momentum;
    __device__ Momentum(const Numbers& n) : momentum(n.at[0]) {}
    __device__ State update(State value, State* state, State delta) const {
        state[0] = momentum * state[0] + delta;
        return value - state[0];
    }
};

struct MultiversoMomentum : Stepless {
    static const int PLANES = 1;
    State momentum, fresh;
    __device__ MultiversoMomentum(const Numbers& n) : momentum(n.at[0]), fresh(n.at[1]) {}
    __device__ State update(State value, State* state, State delta) const {
        state[0] = momentum * state[0] + fresh * delta;
        return value - state[0];
    }
};

struct Nesterov : Stepless {
    static const int PLANES = 1;
    State momentum;
    __device__ Nesterov(const Numbers& n) : momentum(n.at[0]) {}
    __device__ State update(State value, State* state, State delta) const {
        state[0] = momentum * state[0] + delta;
        return value - (momentum * state[0] + delta);
    }
};

struct Adagrad {
    static const bool COUNTS_STEPS = true;
    static const int PLANES = 1;
    State rate, epsilon, initial;
    double learning_rate, decay;
    __device__ Adagrad(const Numbers& n)
        : rate(0), epsilon(n.at[1]), initial(n.at[3]), learning_rate(n.at[0]), decay(n.at[2]) {}
    __device__ void at_step(Count step) { rate = (State)(learning_rate / (1 + (double)(step - 1) * decay)); }
    __device__ Scale scale() const { return Scale{rate, 1}; }
    __device__ void rescale(Scale scale) { rate = scale.rate; }
    __device__ State update(State value, State* state, State gradient) const {
        state[0] = state[0] + gradient * gradient;
        return value - rate * gradient / (root_of(initial + state[0]) + epsilon);
    }
};

struct MultiversoAdagrad : Stepless {
    static const int PLANES = 1;
    State learning_rate, rho, epsilon;
    __device__ MultiversoAdagrad(const Numbers& n) : learning_rate(n.at[0]), rho(n.at[1]), epsilon(n.at[2]) {}
    __device__ State update(State value, State* state, State delta) const {
        State gradient = delta / learning_rate;
        state[0] = state[0] + gradient * gradient;
        return value - rho * gradient / root_of(state[0] + epsilon);
    }
};

struct Rmsprop : Stepless {
    static const int PLANES = 1;
    State learning_rate, alpha, fresh, epsilon;
    __device__ Rmsprop(const Numbers& n)
        : learning_rate(n.at[0]), alpha(n.at[1]), fresh(n.at[2]), epsilon(n.at[3]) {}
    __device__ State update(State value, State* state, State gradient) const {
        state[0] = alpha * state[0] + fresh * (gradient * gradient);
        return value - learning_rate * gradient / (root_of(state[0]) + epsilon);
    }
};

struct Adadelta : Stepless {
    static const int PLANES = 2;
    State learning_rate, rho, fresh, epsilon;
    __device__ Adadelta(const Numbers& n)
        : learning_rate(n.at[0]), rho(n.at[1]), fresh(n.at[2]), epsilon(n.at[3]) {}
    __device__ State update(State value, State* state, State gradient) const {
        state[0] = rho * state[0] + fresh * (gradient * gradient);
        State step = root_of(state[1] + epsilon) / root_of(state[0] + epsilon) * gradient;
        state[1] = rho * state[1] + fresh * (step * step);
        return value - learning_rate * step;
    }
};

struct Adam {
    static const bool COUNTS_STEPS = true;
    static const int PLANES = 2;
    State beta1, beta2, fresh1, fresh2, epsilon, rate, root;
    double learning_rate, log1, log2;
    __device__ Adam(const Numbers& n)
        : beta1(n.at[0]), beta2(n.at[1]), fresh1(1 - n.at[0]), fresh2(1 - n.at[1]), epsilon(n.at[2]), rate(0),
          root(1), learning_rate(n.at[3]), log1(n.at[4]), log2(n.at[5]) {}
    // Bias correction: the share of the running means that comes from gradients rather than from their initial zero.
    __device__ void at_step(Count step) {
        rate = (State)(learning_rate / -expm1(log1 * (double)step));
        root = (State)sqrt(-expm1(log2 * (double)step));
    }
    __device__ Scale scale() const { return Scale{rate, root}; }
    __device__ void rescale(Scale scale) { rate = scale.rate, root = scale.root; }
    __device__ State update(State value, State* state, State gradient) const {
        state[0] = beta1 * state[0] + fresh1 * gradient;
        state[1] = beta2 * state[1] + fresh2 * (gradient * gradient);
        return value - rate * state[0] / (root_of(state[1]) / root + epsilon);
    }
};

struct Adamw : Adam {
    State kept;
    __device__ Adamw(const Numbers& n) : Adam(n), kept(n.at[6]) {}
    __device__ State update(State value, State* state, State gradient) const {
        return Adam::update(value * kept, state, gradient);
    }
};

struct Adamax : Adam {
    __device__ Adamax(const Numbers& n) : Adam(n) {}
    __device__ State update(State value, State* state, State gradient) const {
        state[0] = beta1 * state[0] + fresh1 * gradient;
        State faded = beta2 * state[1], recent = with_sign(gradient, (State)1) + epsilon;
        state[1] = faded > recent ? faded : recent;
        return value - rate * state[0] / state[1];
    }
};

struct Lion : Stepless {
    static const int PLANES = 1;
    State learning_rate, decay, beta1, beta2, fresh1, fresh2;
    __device__ Lion(const Numbers& n)
        : learning_rate(n.at[0]), decay(n.at[1]), beta1(n.at[2]), beta2(n.at[3]), fresh1(n.at[4]),
          fresh2(n.at[5]) {}
    __device__ State update(State value, State* state, State gradient) const {
        State mean = beta1 * state[0] + fresh1 * gradient;
        // A zero stays zero, and a NaN propagates.
        State direction = mean > 0 || mean < 0 ? with_sign((State)1, mean) : mean;
        state[0] = beta2 * state[0] + fresh2 * gradient;
        return value - learning_rate * (direction + decay * value);
    }
};

struct Ftrl : Stepless {
    static const int PLANES = 2;
    State alpha, beta, lambda1, lambda2;
    __device__ Ftrl(const Numbers& n)
        : alpha(n.at[0]), beta(n.at[1]), lambda1(n.at[2]), lambda2(n.at[3]) {}
    __device__ State update(State value, State* state, State gradient) const {
        State before = root_of(state[1]);
        State n = state[1] + gradient * gradient;
        State after = root_of(n);
        State z = state[0] + (gradient - (after - before) / alpha * value);
        State evidence = with_sign(z, (State)1) - lambda1;
        if (evidence < 0) evidence = 0;
        State weight = (State)0 - with_sign(evidence, z) / ((beta + after) / alpha + lambda2);
        state[0] = z;
        state[1] = n;
        return n == 0 ? value : weight;
    }
};

// The weight that a worker saw last. Plus zero: it has seen none; minus zero: it saw zero.
__device__ inline State from_backup(State backup, State value) {
    return backup == 0 && with_sign((State)1, backup) > 0 ? value : backup;
}

__device__ inline State to_backup(State value) { return value == 0 ? -(State)0 : value; }

struct Dcasgd : Stepless {
    static const int PLANES = 1;
    State factor;
    __device__ Dcasgd(const Numbers& n) : factor(n.at[0]) {}
    __device__ State update(State value, State* state, State delta) const {
        State missed = value - from_backup(state[0], value);
        value = widen(narrow(value - (delta + factor * (delta * delta) * missed)));
        state[0] = to_backup(value);
        return value;
    }
};

struct Dcasgda : Stepless {
    static const int PLANES = 2;
    State learning_rate, lambda, momentum, fresh, epsilon;
    __device__ Dcasgda(const Numbers& n)
        : learning_rate(n.at[0]), lambda(n.at[1]), momentum(n.at[2]), fresh(n.at[3]), epsilon(n.at[4]) {}
    __device__ State update(State value, State* state, State delta) const {
        State gradient = delta / learning_rate;
        state[1] = momentum * state[1] + fresh * (gradient * gradient);
        State strength = lambda / root_of(state[1] + epsilon);
        State missed = value - from_backup(state[0], value);
        value = widen(narrow(value - (delta + strength * (delta * gradient) * missed)));
        state[0] = to_backup(value);
        return value;
    }
};

#endif
