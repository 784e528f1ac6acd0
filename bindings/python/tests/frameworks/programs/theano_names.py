"""PyTensor under the names that Lasagne 0.1 imports from Theano; only what the tests need."""

import sys
import types

import pytensor
import pytensor.tensor as T


def module(name, **values):
    made = types.ModuleType(name)
    made.__dict__.update(values)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, made)
    return made


def install():
    sys.modules["theano"] = pytensor
    sys.modules["theano.tensor"] = T
    module(
        "theano.tensor.nnet",
        softmax=lambda x: T.special.softmax(x, axis=-1),
        sigmoid=T.sigmoid,
        softplus=T.softplus,
        relu=lambda x: T.maximum(x, 0),
        conv2d=None,
        binary_crossentropy=None,
        categorical_crossentropy=None,
    )
    module("theano.tensor.signal")
    module("theano.tensor.signal.downsample")
    module("theano.sandbox")
    module("theano.sandbox.rng_mrg", MRG_RandomStreams=None)
    module("theano.gof", Variable=pytensor.graph.basic.Variable)
    if "pkg_resources" not in sys.modules:
        distribution = types.SimpleNamespace(version="0.1")
        module("pkg_resources", get_distribution=lambda name: distribution)
